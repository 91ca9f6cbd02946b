"""Small programs with `tf.GradientTape`; run as a script, prints what each gives under real TensorFlow as JSON."""

import json
import os

PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


def results(tf):
    """Return each program's result, or its error, as what JSON can hold."""
    found = {}
    for name, fn in PROGRAMS.items():
        try:
            found[name] = {"value": plain(fn(tf))}
        except Exception as error:
            found[name] = {"error": type(error).__name__, "text": str(error)}
    return found


def plain(result):
    if isinstance(result, list | tuple):
        return [plain(item) for item in result]
    if isinstance(result, dict):
        return {key: plain(item) for key, item in result.items()}
    if not hasattr(result, "numpy"):
        return result
    array = result.numpy()
    return [array.real.tolist(), array.imag.tolist()] if array.dtype.kind == "c" else array.tolist()


def scalar(tf):
    return tf.constant(3.0)


def matrix(tf):
    return tf.constant([[0.5, 1.0, -2.0], [1.5, -1.0, 0.25]])


# --- Gradients ------------------------------------------------------------------------------------------------------


@program
def polynomial(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x**3 + 2 * x
    return tape.gradient(y, x)


@program
def layer_with_variables(tf):
    w, b, x = tf.Variable([[1.0, -1.0], [0.5, 2.0], [0.0, 1.0]]), tf.Variable([0.1, -0.2]), matrix(tf)
    with tf.GradientTape() as tape:
        y = tf.nn.softmax(tf.nn.relu(x @ w + b))
        loss = tf.reduce_mean(tf.square(y - 0.3))
    return tape.gradient(loss, {"weights": w, "others": [b, (x,)]}), len(tape.watched_variables())


@program
def many_operations(tf):
    x = matrix(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        parts = [
            tf.reduce_sum(tf.sin(x) * tf.exp(-x)),
            tf.reduce_max(x) * tf.reduce_mean(tf.abs(x)),
            tf.reduce_sum(tf.gather(x, [1, 0, 0]) * tf.concat([x, x[:1]], 0)),
            tf.reduce_sum(tf.where(x > 0, x * x, tf.sigmoid(x))),
            tf.reduce_sum(tf.stack(tf.unstack(x)) @ tf.transpose(x)),
            tf.reduce_sum(tf.reshape(x, [3, 2])[::-1] * tf.tile(x[:, :1], [2, 2])[:3]),
            tf.reduce_logsumexp(x),
        ]
        y = tf.add_n(parts)
    return tape.gradient(y, x)


@program
def structures(tf):
    x, y = scalar(tf), tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch({"x": x, "y": [y]})
        z = {"a": x * y, "b": (x,)}
    return tape.gradient(z, [{"x": x}, (y, y)])


@program
def unconnected(tf):
    x, v = scalar(tf), tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * 2
    zero = tf.UnconnectedGradients.ZERO
    return (
        tape.gradient(y, [x, v]),
        tape.gradient(y, [x, v], unconnected_gradients=zero),
        tape.gradient(y, v, unconnected_gradients="zero"),
    )


@program
def output_gradients(tf):
    x = matrix(tf)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = x * x, x * 3
    return (
        tape.gradient(y, x, output_gradients=x),
        tape.gradient([y, z], x, output_gradients=[x]),
        tape.gradient(y, x, output_gradients=2.0),
    )


@program
def integers(tf):
    x = scalar(tf)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.cast(x, tf.int32) * 2
        z = x * tf.cast(y, tf.float32)
    return tape.gradient(y, x), tape.gradient(z, x)


@program
def source_on_the_way(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        z = y * y + x
    return tape.gradient(z, [x, y, z])


@program
def target_as_source_unwatched(tf):
    x = scalar(tf)
    return recorded_nothing(tf).gradient(x, x)


def recorded_nothing(tf):
    with tf.GradientTape() as tape:
        pass
    return tape


@program
def stopped_gradient(tf):
    x = scalar(tf)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.stop_gradient(x) * x
        z = tf.stop_gradient(x) * 2
    return tape.gradient(y, x), tape.gradient(z, x)


@program
def eager_while_loop(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), (0, 1.0))[1]
    return tape.gradient(y, x)


# --- Complex numbers ----------------------------------------------------------------------------------------------


def complex_programs(tf):
    return {
        "square": lambda z: z * z,
        "abs": tf.abs,
        "real": tf.math.real,
        "imag": tf.math.imag,
        "conj": tf.math.conj,
        "exp": tf.exp,
        "squared_abs": lambda z: tf.math.real(z * tf.math.conj(z)),
        "inverse": lambda z: 1 / z,
        "angle": tf.math.angle,
        "sqrt": tf.sqrt,
    }


@program
def complex_gradients(tf):
    found = {}
    for name, fn in complex_programs(tf).items():
        for dtype in ("complex64", "complex128"):
            z = tf.constant([1 + 2j, -0.5 - 1j], dtype)
            with tf.GradientTape() as tape:
                tape.watch(z)
                y = fn(z)
            found[f"{name} {dtype}"] = tape.gradient(y, z)
    return found


@program
def complex_output_gradients(tf):
    z = tf.constant([1 + 2j, -0.5 - 1j], tf.complex64)
    with tf.GradientTape() as tape:
        tape.watch(z)
        y = z * z
    return tape.gradient(y, z, output_gradients=tf.constant([2 + 3j, 1j], tf.complex64))


@program
def complex_between_real(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = tf.complex(x, 2 * x)
        y = tf.abs(z * z * tf.constant(1 + 2j, tf.complex64))
    return tape.gradient(y, x)


@program
def complex_second_order(tf):
    z = tf.constant(1 + 2j, tf.complex64)
    with tf.GradientTape() as outer:
        outer.watch(z)
        with tf.GradientTape() as inner:
            inner.watch(z)
            y = z * z * z
        slope = inner.gradient(y, z)
        size = tf.abs(slope)
    return outer.gradient(size, z)


@program
def complex_custom_gradient(tf):
    @tf.custom_gradient
    def fn(z):
        return z * z, lambda upstream: upstream * tf.constant(2 + 1j, tf.complex64)

    z = tf.constant(1 + 2j, tf.complex64)
    with tf.GradientTape() as tape:
        tape.watch(z)
        y = fn(z) * tf.constant(1j, tf.complex64)
    return tape.gradient(y, z)


# --- Variables --------------------------------------------------------------------------------------------------------


@program
def variable_assigned_between_reads(tf):
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * 3
        v.assign(5.0)
        y += v * v
    return tape.gradient(y, v)


@program
def variable_assigned_from_itself(tf):
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        v.assign(v * 3)
        v.assign_add(v)
        y = v * v
    return tape.gradient(y, v)


@program
def variables_with_one_value(tf):
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([0.0, 0.0])
    b.assign(a)
    with tf.GradientTape() as tape:
        y = a * a + b * 3
    return tape.gradient(y, [a, b])


@program
def variables_not_trainable(tf):
    fixed, free = tf.Variable(2.0, trainable=False), tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = fixed * free
    with tf.GradientTape(watch_accessed_variables=False) as other:
        other.watch(fixed)
        z = fixed * free
    return tape.gradient(y, [fixed, free]), other.gradient(z, [fixed, free])


@program
def variable_read_before_the_tape(tf):
    v = tf.Variable(2.0)
    early = v.read_value()
    with tf.GradientTape() as tape:
        y = early * 2 + v * 3
    return tape.gradient(y, v)


@program
def variable_and_its_read_as_sources(tf):
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        read = v.read_value()
        y = read * read
    return tape.gradient(y, [v, read])


@program
def variable_as_target(tf):
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * 2
    return tape.gradient([y, v], v)


# --- Several tapes, several times --------------------------------------------------------------------------------------


@program
def second_derivative(tf):
    x = matrix(tf)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.sin(x) * x)
        slope = inner.gradient(y, x)
        size = tf.reduce_sum(slope * slope)
    return outer.gradient(size, x)


@program
def gradient_inside_a_persistent_tape(tf):
    x = scalar(tf)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.exp(x) * x
        slope = tape.gradient(y, x)
    return slope, tape.gradient(slope, x)


@program
def gradient_of_the_outer_tape_inside_the_inner(tf):
    x = scalar(tf)
    with tf.GradientTape(persistent=True) as outer, tf.GradientTape() as inner:
        outer.watch(x)
        inner.watch(x)
        y = x**3
        slope = outer.gradient(y, x)
    return inner.gradient(slope, x)


@program
def gradient_inside_a_tape_that_is_not_persistent(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        return tape.gradient(y, x)


@program
def stop_recording(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        with tape.stop_recording():
            z = y * 3
        z = z + y
    return tape.gradient(z, x)


@program
def reset(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        tape.reset()
        tape.watch(x)
        z = y * x
    return tape.gradient(z, x)


@program
def entered_again(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * 2
    unseen = y * 3
    with tape:
        z = y * x + unseen
    first = tape.gradient(z, x)
    with tape:
        tape.watch(x)
        z = x * x
    return first, tape.gradient(z, x)


@program
def inside_functions(tf):
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(v * v * x)
        slope = tape.gradient(y, v)
        v.assign_sub(0.1 * slope)
        return y, slope

    x = tf.constant([3.0, -1.0])
    return step(x), step(x), v.read_value()


@program
def around_functions(tf):
    v = tf.Variable([1.0, 2.0])
    squared = tf.function(lambda x: v * v * x)
    x = tf.constant([3.0, -1.0])
    found = []
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = squared(x) * 2
        found.append(tape.gradient(y, [v, x]))
        v.assign(v + 1)
    return found


# --- Jacobians --------------------------------------------------------------------------------------------------------


@program
def jacobian(tf):
    x, v = matrix(tf), tf.Variable([1.0, -1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.linalg.matvec(tf.sin(x), v)
    return tape.jacobian(y, {"x": x, "v": v, "other": tf.constant(1.0)})


@program
def jacobian_one_row_after_the_other(tf):
    x = matrix(tf)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x[0] * x[1]
    return tape.jacobian(y, x, experimental_use_pfor=False)


@program
def jacobian_of_unconnected_with_zeros(tf):
    x, other = matrix(tf), tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x[0] * x[1]
    return tape.jacobian(y, [other], unconnected_gradients=tf.UnconnectedGradients.ZERO)


@program
def hessian(tf):
    x = tf.constant([1.0, 2.0, -1.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_prod(tf.sin(x) + x)
        slope = inner.gradient(y, x)
    return outer.jacobian(slope, x)


@program
def batch_jacobian(tf):
    x = matrix(tf)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.stack([x[:, 0] * x[:, 1], tf.exp(x[:, 2])], axis=1)
        constant = tf.ones([2, 2])
    return (
        tape.batch_jacobian(y, x),
        tape.batch_jacobian(y, x, experimental_use_pfor=False),
        tape.batch_jacobian(constant, x),
    )


@program
def jacobian_inside_function(tf):
    @tf.function
    def slopes(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(x) * x[0]
        return tape.jacobian(y, x)

    return slopes(tf.constant([1.0, 2.0]))


# --- Custom gradients --------------------------------------------------------------------------------------------------


@program
def custom_gradient(tf):
    @tf.custom_gradient
    def fn(x):
        return x * x, lambda upstream: upstream * 100.0

    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x) * 2
    return y, tape.gradient(y, x)


@program
def custom_gradient_that_avoids_overflow(tf):
    @tf.custom_gradient
    def log1pexp(x):
        e = tf.exp(x)
        return tf.math.log(1 + e), lambda upstream: upstream * (1 - 1 / (1 + e))

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = log1pexp(x)
        return tape.gradient(y, x)

    x = tf.constant(100.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.function(log1pexp)(x)
    return slope(x), tf.function(slope)(x), tape.gradient(y, x)


@program
def custom_gradient_twice_differentiated(tf):
    @tf.custom_gradient
    def fn(x):
        y = tf.sigmoid(x)
        return y, lambda upstream: upstream * y * (1 - y) * 2

    x = tf.constant([0.5, -1.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = fn(x)
        slope = inner.gradient(y, x)
    return slope, outer.gradient(slope, x)


@program
def custom_gradient_with_variables(tf):
    v = tf.Variable(4.0)

    @tf.custom_gradient
    def fn(x):
        def grad(upstream, variables=None):
            return upstream * 2, [upstream * 7 for _ in variables]

        return x * v, grad

    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x)
    return tape.gradient(y, [x, v])


@program
def custom_gradient_of_several_tensors(tf):
    @tf.custom_gradient
    def fn(x, y):
        return (x * y, x + y), lambda a, b: (a * 2 + b, None)

    x, y = scalar(tf), tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        p, q = fn(x, y)
    return p, q, tape.gradient([p, q], [x, y])


@program
def custom_gradient_closes_over_watched(tf):
    x, h = scalar(tf), tf.constant(5.0)

    @tf.custom_gradient
    def fn(x):
        return x * h, lambda upstream: upstream * 2

    with tf.GradientTape() as tape:
        tape.watch([x, h])
        y = fn(x)
    return tape.gradient(y, [x, h])


@program
def custom_gradient_of_a_method_with_keywords(tf):
    class Scale:
        factor = 3.0

        @tf.custom_gradient
        def __call__(self, x, power=1.0):
            return x * self.factor * power, lambda upstream: upstream * self.factor

    x, scale = scalar(tf), Scale()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = scale(x, power=2.0)
    return y, tape.gradient(y, x)


# --- Mistakes -----------------------------------------------------------------------------------------------------------


@program
def watch_a_number(tf):
    with tf.GradientTape() as tape:
        tape.watch(2.0)


@program
def watch_an_array(tf):
    import numpy as np

    with tf.GradientTape() as tape:
        tape.watch(np.ones(3, "float32"))


@program
def use_twice(tf):
    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    tape.gradient(y, x)
    tape.gradient(y, x)


@program
def jacobian_after_gradient(tf):
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    tape.gradient(y, x)
    tape.jacobian(y, x)


@program
def never_entered(tf):
    tf.GradientTape().gradient(scalar(tf), scalar(tf))


@program
def enter_while_recording(tf):
    with tf.GradientTape() as tape, tape:
        pass


@program
def stop_recording_before_recording(tf):
    with tf.GradientTape().stop_recording():
        pass


@program
def stop_recording_after_recording(tf):
    with recorded_nothing(tf).stop_recording():
        pass


@program
def stop_recording_twice(tf):
    with tf.GradientTape() as tape, tape.stop_recording(), tape.stop_recording():
        pass


@program
def reset_before_recording(tf):
    tf.GradientTape().reset()


@program
def target_none(tf):
    recorded_nothing(tf).gradient(None, scalar(tf))


@program
def unknown_unconnected_gradients(tf):
    recorded_nothing(tf).gradient(scalar(tf), scalar(tf), unconnected_gradients="some")


@program
def row_after_row_without_persistence(tf):
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    tape.jacobian(y, x, experimental_use_pfor=False)


@program
def batch_jacobian_of_other_length(tf):
    x = matrix(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x[:1] * 2
    tape.batch_jacobian(y, x)


@program
def batch_jacobian_of_a_vector(tf):
    x = matrix(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x[:, 0] * 2
    tape.batch_jacobian(y, x)


@program
def custom_gradient_without_variables(tf):
    v = tf.Variable(4.0)

    @tf.custom_gradient
    def fn(x):
        return x * v, lambda upstream: upstream

    fn(scalar(tf))


@program
def custom_gradient_of_wrong_number(tf):
    @tf.custom_gradient
    def fn(x, y):
        return x * y, lambda upstream: upstream

    x = scalar(tf)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x, x)
    tape.gradient(y, x)


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow

    print(json.dumps(results(tensorflow)))
