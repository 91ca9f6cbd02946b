"""The same training step, made in several ways: contenders of `benchmarks/bench_steps.py` and of the HLO tests.

Each function returns `run(n)`, which takes `n` steps and returns when they have finished, and for JAX a function that
compiles the step to be looked at. All train the same model on the same batch, over all devices.
"""

# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportAssignmentType=false
from models import MODELS


def hand_written(name, *, feed=False, donate=True):
    """The step as one would write it in JAX: `shard_map`, one fused all-reduce, donated state.

    With `feed`, every step brings its batch to the devices, as `fit` does. With `donate=False` the state's memory is not
    reused, which is faster for small states on several CPU devices.
    """
    import jax
    import jax.numpy as jnp
    import keras
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    keras.utils.set_random_seed(0)  # The same first weights in all processes.
    model, optimizer = make_model(keras, name), keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    rows = MODELS[name].rows

    def fused_sum(arrays):
        """Sum over the devices: small arrays in one all-reduce, big ones on their own."""
        small = [i for i, a in enumerate(arrays) if a.nbytes < 1 << 20]
        flat = jax.lax.psum(jnp.concatenate([arrays[i].ravel() for i in small]), "data")
        sums = [a if i in small else jax.lax.psum(a, "data") for i, a in enumerate(arrays)]
        for i in small:
            sums[i], flat = flat[: sums[i].size].reshape(sums[i].shape), flat[sums[i].size :]
        return sums

    def replica(weights, moving, slots, x, y):
        def loss_fn(weights):
            logits, moved = model.stateless_call(weights, moving, x, training=True)
            return jnp.sum(losses(y, logits)) / rows, moved

        (loss, moving), grads = jax.value_and_grad(loss_fn, has_aux=True)(weights)
        # Moving statistics are the mean of the replicas' own.
        loss, *sums = fused_sum([loss, *(m / jax.device_count() for m in moving), *grads])
        moving, grads = sums[: len(moving)], sums[len(moving) :]
        weights, slots = optimizer.stateless_apply(slots, grads, weights)
        return weights, moving, slots, loss

    program = jax.shard_map(
        replica, mesh=mesh, in_specs=(*[P()] * 3, P("data"), P("data")), out_specs=(P(),) * 4, check_vma=False
    )
    step = jax.jit(program, donate_argnums=(0, 1, 2) if donate else ())
    whole = NamedSharding(mesh, P())
    parts = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    state = jax.device_put([[v.value for v in part] for part in parts], whole)
    place = _placement(MODELS[name].batch(), NamedSharding(mesh, P("data")))
    x, y = place()

    def run(steps):
        nonlocal state, x, y
        pending = None
        for _ in range(steps):
            if feed:
                x, y = place()
            *state, loss = step(*state, x, y)
            # Not more than two steps under way: jax 0.10 hangs otherwise.
            jax.block_until_ready(pending)
            pending = loss
        jax.block_until_ready(state)

    return run, lambda: step.lower(*state, x, y).compile()


def make_model(keras, name):
    """Build a model of `MODELS`."""
    model = MODELS[name]
    return model.make(keras, model.shape)


def _placement(host_batch, split):
    """Return what brings a batch to the devices, each process its own rows."""
    import jax

    if jax.process_count() == 1:
        return lambda: jax.device_put(host_batch, split)
    rows = len(host_batch[0]) // jax.process_count()
    own = slice(jax.process_index() * rows, (jax.process_index() + 1) * rows)
    return lambda: [jax.make_array_from_process_local_data(split, leaf[own]) for leaf in host_batch]


def custom_loop(tf, name, *, compiled=True, feed=False, strategy=None):
    """The step as a `tf.distribute` program writes it; runs under this project and under TensorFlow.

    With `compiled=False` it leaves out `tf.function`; with `feed`, every step takes a batch from the dataset.
    """
    keras = tf.keras
    strategy = strategy or tf.distribute.MirroredStrategy()
    with strategy.scope():
        model, optimizer = make_model(keras, name), keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
        losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(losses(y, model(x, training=True)), global_batch_size=MODELS[name].rows)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    def step(x, y):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(x, y)), axis=None)

    if compiled:
        step = tf.function(step)
    dataset = tf.data.Dataset.from_tensors(MODELS[name].batch()).repeat()
    batches = iter(strategy.experimental_distribute_dataset(dataset))
    x, y = next(batches)

    def run(steps):
        loss = None
        for _ in range(steps):
            loss = step(*next(batches)) if feed else step(x, y)
        float(loss)

    return run, lambda: step.lower(x, y).compile()


def fit(tf, name, *, steps_per_execution=1, strategy=None):
    """`model.fit`, as it is: input pipeline, metrics and callbacks included."""
    keras = tf.keras
    strategy = strategy or tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = make_model(keras, name)
        model.compile(
            keras.optimizers.Adam(1e-3),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=steps_per_execution,
        )
    dataset = tf.data.Dataset.from_tensors(MODELS[name].batch()).repeat()

    def run(steps):
        model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)

    return run, None
