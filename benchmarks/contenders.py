"""The same training step, made in several ways: contenders of `benchmarks/bench_steps.py` and of the HLO tests.

Each function returns `run(n)`, which takes `n` steps and returns when they have finished, and for JAX the compiled
program. All train the same model on the same batch, over all devices.
"""

# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportAssignmentType=false
import numpy as np

MODELS = ("mlp", "cnn")
ROWS = {"mlp": 512, "cnn": 128}


def batch(name):
    """Images and labels for a model, `ROWS[name]` of them."""
    random = np.random.RandomState(0)
    shape = {"mlp": (784,), "cnn": (28, 28, 1)}[name]
    return random.rand(ROWS[name], *shape).astype("f4"), random.randint(0, 10, ROWS[name]).astype("i4")


def make_model(keras, name):
    """A multilayer perceptron or a convolutional network with ten classes."""
    layers = keras.layers
    if name == "mlp":
        hidden = [layers.Dense(512, activation="relu"), layers.Dense(512, activation="relu")]
        return keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(10)])
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def hand_written(name):
    """The step as one would write it in JAX: `shard_map`, one fused all-reduce, donated state."""
    import jax
    import jax.numpy as jnp
    import keras
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    model, optimizer = make_model(keras, name), keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    rows = ROWS[name]

    def replica(weights, slots, x, y):
        def loss_fn(weights):
            logits, _ = model.stateless_call(weights, [], x, training=True)
            return jnp.sum(losses(y, logits)) / rows

        loss, grads = jax.value_and_grad(loss_fn)(weights)
        small = [i for i, g in enumerate(grads) if g.nbytes < 1 << 20]
        flat = jax.lax.psum(jnp.concatenate([loss[None], *(grads[i].ravel() for i in small)]), "data")
        loss, flat = flat[0], flat[1:]
        for i in small:
            grads[i], flat = flat[: grads[i].size].reshape(grads[i].shape), flat[grads[i].size :]
        grads = [g if i in small else jax.lax.psum(g, "data") for i, g in enumerate(grads)]
        weights, slots = optimizer.stateless_apply(slots, grads, weights)
        return weights, slots, loss

    program = jax.shard_map(
        replica, mesh=mesh, in_specs=(P(), P(), P("data"), P("data")), out_specs=(P(), P(), P()), check_vma=False
    )
    step = jax.jit(program, donate_argnums=(0, 1))
    whole = NamedSharding(mesh, P())
    state = jax.device_put(
        ([v.value for v in model.trainable_variables], [v.value for v in optimizer.variables]), whole
    )
    x, y = jax.device_put(batch(name), NamedSharding(mesh, P("data")))
    compiled = step.lower(*state, x, y).compile()

    def run(steps):
        nonlocal state
        pending = None
        for _ in range(steps):
            *state, loss = step(*state, x, y)
            # Not more than two steps under way: jax 0.10 hangs otherwise.
            jax.block_until_ready(pending)
            pending = loss
        jax.block_until_ready(state)

    return run, compiled


def custom_loop(tf, name):
    """The step as a `tf.distribute` program writes it; runs under this project and under TensorFlow."""
    keras = tf.keras
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model, optimizer = make_model(keras, name), keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
        losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(losses(y, model(x, training=True)), global_batch_size=ROWS[name])
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(x, y):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(x, y)), axis=None)

    dataset = tf.data.Dataset.from_tensors(batch(name))
    x, y = next(iter(strategy.experimental_distribute_dataset(dataset)))

    def run(steps):
        loss = None
        for _ in range(steps):
            loss = step(x, y)
        float(loss)

    return run, (step.lower(x, y).compile() if hasattr(step, "lower") else None)


def fit(tf, name):
    """`model.fit`, as it is: input pipeline, metrics and callbacks included."""
    keras = tf.keras
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = make_model(keras, name)
        model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    dataset = tf.data.Dataset.from_tensors(batch(name)).repeat()

    def run(steps):
        model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)

    return run, None
