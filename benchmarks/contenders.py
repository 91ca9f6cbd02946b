"""The same training step, made in several ways: contenders of `benchmarks/bench_steps.py` and of the HLO tests.

Each function returns `run(n)`, which takes `n` steps and returns when they have finished, and for JAX a function that
compiles the step to be looked at. All train the same model on the same batch, over all devices.
"""

# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportAssignmentType=false
from models import MODELS, make_model


def hand_written(name, *, feed=False, donate=True, read=False):
    """The step as one would write it in JAX: `shard_map`, one fused all-reduce, donated state.

    With `feed`, every step brings its batch to the devices, as `fit` does. With `donate=False` the state's memory is not
    reused, which is faster for small states on several CPU devices. With `read`, every step ends with its loss as a number.
    """
    import jax
    import keras
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    keras.utils.set_random_seed(0)  # The same first weights in all processes.
    state, replica = (_write_adversaries if name == "dcgan" else _write_classifier)(keras, name)
    program = jax.shard_map(
        replica, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()), check_vma=False
    )
    step = jax.jit(program, donate_argnums=(0,) if donate else ())
    state = jax.device_put(state, NamedSharding(mesh, P()))
    place = _placement(MODELS[name].batch(), NamedSharding(mesh, P("data")))
    x, y = place()

    def run(steps):
        nonlocal state, x, y
        pending = None
        for _ in range(steps):
            if feed:
                x, y = place()
            state, loss = step(state, x, y)
            # Not more than two steps under way: jax 0.10 hangs otherwise.
            jax.block_until_ready(pending)
            pending = float(loss) if read else loss
        jax.block_until_ready(state)

    return run, lambda: step.lower(state, x, y).compile()


def _write_classifier(keras, name):
    """Return the state, and the function from the state and a replica's rows to the new state and the loss."""
    import jax
    import jax.numpy as jnp

    model, optimizer = make_model(keras, name), keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    rows = MODELS[name].rows

    def replica(state, x, y):
        weights, moving, slots = state

        def loss_fn(weights):
            logits, moved = model.stateless_call(weights, moving, x, training=True)
            return jnp.sum(losses(y, logits)) / rows, moved

        (loss, moving), grads = jax.value_and_grad(loss_fn, has_aux=True)(weights)
        loss, moving, grads = _reduce(loss, moving, grads)
        weights, slots = optimizer.stateless_apply(slots, grads, weights)
        return (weights, moving, slots), loss

    return _values(model.trainable_variables, model.non_trainable_variables, optimizer.variables), replica


def _write_adversaries(keras, name):
    """The same for a generator and a discriminator."""
    import jax
    import jax.numpy as jnp

    networks = make_model(keras, name)
    optimizers = [keras.optimizers.Adam(1e-4) for _ in networks]
    for network, optimizer in zip(networks, optimizers, strict=True):
        optimizer.build(network.trainable_variables)
    losses = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")
    rows, (generator, discriminator) = MODELS[name].rows, networks

    def replica(state, noise, images):
        (made_by, judged_by), moving, slots = state

        def judge(judged_by, images, is_real):
            logits, _ = discriminator.stateless_call(judged_by, [], images, training=True)
            return jnp.sum(losses(jnp.full_like(logits, is_real), logits)) / rows

        def make_loss(made_by):
            fakes, moved = generator.stateless_call(made_by, moving, noise, training=True)
            return judge(judged_by, fakes, 1.0), (fakes, moved)

        (loss, (fakes, moved)), made_grads = jax.value_and_grad(make_loss, has_aux=True)(made_by)
        judge_loss, judged_grads = jax.value_and_grad(lambda w: judge(w, images, 1.0) + judge(w, fakes, 0.0))(judged_by)
        loss, moved, grads = _reduce(loss + judge_loss, moved, [*made_grads, *judged_grads])
        grads = grads[: len(made_by)], grads[len(made_by) :]
        applied = [
            optimizer.stateless_apply(s, g, w)
            for optimizer, s, g, w in zip(optimizers, slots, grads, (made_by, judged_by), strict=True)
        ]
        return ([w for w, _ in applied], moved, [s for _, s in applied]), loss

    weights, slots = [n.trainable_variables for n in networks], [o.variables for o in optimizers]
    return (_values(*weights), *_values(generator.non_trainable_variables), _values(*slots)), replica


def _values(*lists):
    return tuple([v.value for v in variables] for variables in lists)


def _reduce(loss, moving, grads):
    """Sum over the devices, small arrays in one all-reduce and big ones on their own; moving statistics are the mean."""
    import jax
    import jax.numpy as jnp

    arrays = [loss, *(m / jax.device_count() for m in moving), *grads]
    small = [i for i, a in enumerate(arrays) if a.nbytes < 1 << 20]
    flat = jax.lax.psum(jnp.concatenate([arrays[i].ravel() for i in small]), "data")
    sums = [a if i in small else jax.lax.psum(a, "data") for i, a in enumerate(arrays)]
    for i in small:
        sums[i], flat = flat[: sums[i].size].reshape(sums[i].shape), flat[sums[i].size :]
    return sums[0], sums[1 : 1 + len(moving)], sums[1 + len(moving) :]


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
    strategy = strategy or tf.distribute.MirroredStrategy()
    with strategy.scope():
        train_step = (_make_adversaries_step if name == "dcgan" else _make_classifier_step)(tf, name)

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


def _make_classifier_step(tf, name):
    keras = tf.keras
    model, optimizer = make_model(keras, name), keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(losses(y, model(x, training=True)), global_batch_size=MODELS[name].rows)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    return train_step


def _make_adversaries_step(tf, name, networks=None):
    """A step of a generator and a discriminator."""
    keras = tf.keras
    networks = generator, discriminator = networks or make_model(keras, name)
    optimizers = [keras.optimizers.Adam(1e-4) for _ in networks]
    for network, optimizer in zip(networks, optimizers, strict=True):
        optimizer.build(network.trainable_variables)
    losses = keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def average(labels, logits):
        return tf.nn.compute_average_loss(losses(labels, logits), global_batch_size=MODELS[name].rows)

    def train_step(noise, images):
        with tf.GradientTape() as made, tf.GradientTape() as judged:
            fakes = generator(noise, training=True)
            real, fake = discriminator(images, training=True), discriminator(fakes, training=True)
            make_loss = average(tf.ones_like(fake), fake)
            judge_loss = average(tf.ones_like(real), real) + average(tf.zeros_like(fake), fake)
        tapes = (made, make_loss), (judged, judge_loss)
        for (tape, loss), network, optimizer in zip(tapes, networks, optimizers, strict=True):
            variables = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return make_loss + judge_loss

    return train_step


def fit(tf, name, *, steps_per_execution=1, strategy=None):
    """`model.fit`, as it is: input pipeline, metrics and callbacks included."""
    keras = tf.keras
    strategy = strategy or tf.distribute.MirroredStrategy()
    with strategy.scope():
        if name == "dcgan":
            model = _make_fitted_adversaries(tf, name)
            model.compile()
        else:
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


def _make_fitted_adversaries(tf, name):
    """A Keras model whose `train_step` is that of the custom loop."""
    networks = make_model(tf.keras, name)
    step = _make_adversaries_step(tf, name, networks)

    class Adversaries(tf.keras.Model):
        def call(self, noise):
            return networks[0](noise)

        def train_step(self, data):
            return {"loss": step(*data)}

    return Adversaries()
