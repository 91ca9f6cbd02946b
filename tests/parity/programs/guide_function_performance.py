"""The guide to better performance with tf.function: tracing rules, graphs from Python, loops, arrays that grow, pitfalls."""

import numpy as np
import tensorflow as tf
from _facts import error, show

traced = []


@tf.function
def add(a, b):
    return a + b


show("add", add(tf.ones([2, 2]), tf.ones([2, 2])))
v = tf.Variable(1.0)
with tf.GradientTape() as tape:
    result = add(v, 1.0)
show("its gradient", tape.gradient(result, v))


@tf.function
def dense_layer(x, w, b):
    return add(tf.matmul(x, w), b)


show("functions in functions", dense_layer(tf.ones([3, 2]), tf.ones([2, 2]), tf.ones([2])))


@tf.function
def double(a):
    traced.append(1)
    return a + a


show("polymorphic", [double(tf.constant(1)), double(tf.constant(1.1))])
show("traces", len(traced))
double(tf.constant(2.2))
show("reused", len(traced))
show("texts", double(tf.constant("a")))
double_strings = double.get_concrete_function(tf.constant("a"))
show("executed", double_strings(tf.constant("b")))
show("constants are part of it", double.get_concrete_function(tf.constant(1))(tf.constant(7)))
specific = double.get_concrete_function(tf.TensorSpec(shape=None, dtype=tf.float32))
show("unknown rank", [specific(tf.constant(1.0)), specific(tf.ones([2]))])
error("another type", lambda: double_strings(tf.constant(1)))


@tf.function
def scaled(x, by=2, *, options=None):
    return {"x": x * by, "parts": (x, [by])}


scaled(tf.constant(1.0))
scaled(tf.constant(1), by=3)
scaled(tf.ones([2]), options={"k": tf.ones([1])})
print(scaled.pretty_printed_concrete_signatures())
print(scaled.get_concrete_function(tf.TensorSpec([None, 2])))


class FruitType(tf.types.experimental.TraceType):
    """Fruits of one class share a program."""

    def __init__(self, fruit):
        self.fruit = fruit

    def is_subtype_of(self, other):
        return self == other

    def most_specific_common_supertype(self, others):
        return self if all(self == other for other in others) else None

    def placeholder_value(self, placeholder_context=None):
        return self.fruit

    def __eq__(self, other):
        return isinstance(other, FruitType) and type(self.fruit) is type(other.fruit)

    def __hash__(self):
        return hash(type(self.fruit))


class Fruit:
    """Says itself what a trace depends on."""

    def __tf_tracing_type__(self, context):
        return FruitType(self)


class Apple(Fruit):
    flavor = tf.constant([1, 2])


class Mango(Fruit):
    flavor = tf.constant([3, 4])


@tf.function
def mix(one, other):
    traced.append(1)
    return one.flavor + other.flavor


traced.clear()
show("of fruits", [mix(Apple(), Mango()), mix(Apple(), Mango()), mix(Mango(), Mango())])
show("kinds of them", len(traced))


@tf.function
def train_loop(num_steps):
    traced.append(1)
    for _ in range(num_steps):
        pass
    return tf.constant(0) if isinstance(num_steps, int) else num_steps


traced.clear()
for steps in (10, 20, 10):
    train_loop(num_steps=steps)
show("Python numbers are traced each", len(traced))
train_loop.get_concrete_function(num_steps=10)
show("and kept", len(traced))


@tf.function(reduce_retracing=True)
def relaxed(x):
    return tf.reduce_sum(x)


show("relaxed", [relaxed(tf.range(n)) for n in (2, 3, 4)])
f = lambda x: x + 1
show("function objects do not share", [tf.function(f)(tf.constant(1)), tf.function(f) is tf.function(f)])


class Flavour:
    """An object that is a constant of a function."""

    def __init__(self, value):
        self.value = value


@tf.function
def evaluate(model, x):
    return model.value * x


flavour = Flavour(2.0)
show("objects as arguments", [evaluate(flavour, tf.constant(3.0)), evaluate(Flavour(4.0), tf.constant(3.0))])


@tf.function
def settle(x):
    steps = 0
    while tf.reduce_sum(x) > 1:
        x = tf.tanh(x)
        steps += 1
    return x, steps


show("simple loop", settle(tf.constant([0.5, 0.9, 0.3])))
show("its code is text", "while" in tf.autograph.to_code(settle.python_function))


@tf.function
def fizzbuzz(n):
    result = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
    for i in tf.range(1, n + 1):
        if i % 15 == 0:
            result = result.write(i - 1, -15)
        elif i % 5 == 0:
            result = result.write(i - 1, -5)
        elif i % 3 == 0:
            result = result.write(i - 1, -3)
        else:
            result = result.write(i - 1, i)
    return result.stack()


show("fizzbuzz", fizzbuzz(tf.constant(16)))
show("fizzbuzz of a Python number", fizzbuzz(5))


def rnn_step(inp, state):
    return tf.tanh(inp + state)


@tf.function
def dynamic_rnn(step, input_data, initial_state):
    input_data = tf.transpose(input_data, [1, 0, 2])
    max_seq_len = tf.shape(input_data)[0]
    states = tf.TensorArray(tf.float32, size=max_seq_len)
    state = initial_state
    for i in tf.range(max_seq_len):
        state = step(input_data[i], state)
        states = states.write(i, state)
    return tf.transpose(states.stack(), [1, 0, 2])


inputs = tf.reshape(tf.range(24.0), [2, 3, 4]) / 24
with tf.GradientTape() as tape:
    tape.watch(inputs)
    outputs = dynamic_rnn(rnn_step, inputs, tf.zeros([2, 4]))
    loss = tf.reduce_sum(outputs)
show("recurrent", [tf.reduce_sum(outputs, [0, 2]), tf.reduce_sum(tape.gradient(loss, inputs), 2)])


@tf.function
def growing_rnn(input_data, state):
    states = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(tf.shape(input_data)[1]):
        state = rnn_step(input_data[:, i], state)
        states = states.write(i, state)
    return states.stack()


with tf.GradientTape() as tape:
    tape.watch(inputs)
    loss = tf.reduce_sum(growing_rnn(inputs, tf.zeros([2, 4])))
show("growing", tf.reduce_sum(tape.gradient(loss, inputs), 2))


@tf.function
def power(x, limit):
    while tf.reduce_sum(x) < limit:
        x = x * x
    return x


@tf.function
def counted(x):
    i = 0
    while i < 3 and tf.reduce_sum(x) < 1e6:
        x = x * x
        i += 1
    return tf.reduce_sum(x)


def slope(function, *args):
    x = tf.constant([1.5, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x, *args)
    return [y, tape.gradient(y, x)]


show("gradient through while", slope(power, 50.0))
show("a limit that is a tensor", slope(power, tf.constant(50.0)))
show("counted in Python", slope(counted))


@tf.function
def slope_inside(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(tf.cast(tf.reduce_sum(x), tf.int32)):
            y = y * x
    return tape.gradient(y, x)


show("tape inside", slope_inside(tf.constant([1.5, 2.0])))


@tf.function
def invariants(n):
    numbers = tf.zeros([0])
    for i in tf.range(n):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(numbers, tf.TensorShape([None]))])
        numbers = tf.concat([numbers, [tf.cast(i, tf.float32)]], 0)
    return numbers


@tf.function
def no_invariants(n):
    numbers = tf.zeros([0])
    for i in tf.range(n):
        numbers = tf.concat([numbers, [tf.cast(i, tf.float32)]], 0)
    return numbers


show("shape invariants", [invariants(tf.constant(3)), invariants(tf.constant(0))])
error("without them", lambda: no_invariants(tf.constant(3)))


@tf.function
def while_loop(n):
    invariants = [tf.TensorShape([]), tf.TensorShape([None])]
    body = lambda i, a: (i + 1, tf.concat([a, [i * i]], 0))
    return tf.while_loop(
        lambda i, a: i < n, body, [tf.constant(0), tf.zeros([0], tf.int32)], shape_invariants=invariants
    )


show("of tf.while_loop", while_loop(tf.constant(3)))


@tf.function
def of_values(x, n):
    chosen = tf.boolean_mask(x, x > 1)
    return chosen, x[:n], tf.zeros([n]), tf.where(x > 1), tf.range(n), tf.unique(tf.cast(x, tf.int32)).y


show("sizes that depend on values", of_values(tf.constant([0.0, 1.0, 2.0, 3.0]), tf.constant(2)))


@tf.function
def branches(x):
    if x > 0:
        y = tf.ones([2])
    else:
        y = tf.ones([3])
    return tf.reduce_sum(y)


show("branches of different shapes", [branches(tf.constant(1)), branches(tf.constant(-1))])

external_list = []


def append(x):
    external_list.append(x.numpy().tolist())
    return x


@tf.function
def side_effect(x):
    tf.py_function(append, inp=[x], Tout=[tf.float32])


for number in (1.0, 1.0, 2.0):
    side_effect(tf.constant(number))
tf.py_function(lambda: None, inp=[], Tout=[])
show("py_function", sorted(external_list))


@tf.function
def consume_next(iterator):
    return next(iterator)


iterator = iter(tf.data.Dataset.from_tensor_slices([1, 2, 3]))
show("an iterator as argument", [consume_next(iterator) for _ in range(3)])


@tf.function
def buggy_add():
    return 1 + foo


@tf.function
def variable_add():
    return 1 + bar


foo, bar = 1, tf.Variable(1)
buggy_add(), variable_add()
foo = 100
bar.assign(100)
show("Python's names and variables", [buggy_add(), variable_add()])
model = Flavour(2.0)
bound = tf.function(lambda x: evaluate.python_function(model, x))
bound(tf.constant(1.0))
model.value = 5.0
show("a constant stays", bound(tf.constant(1.0)))


@tf.function
def train_one_step(optimizer, w, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * x)
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])
    return w.read_value()


w = tf.Variable([2.0, 3.0])
for rate in (0.5, 0.25):
    optimizer = tf.keras.optimizers.SGD(rate)
    optimizer.build([w])
    step = tf.function(lambda x, optimizer=optimizer: train_one_step.python_function(optimizer, w, x))
    show(f"optimizer with {rate}", step(tf.constant([-1.0, 2.0])))
count = tf.Variable(0)


@tf.function
def ordered():
    count.assign_add(2)
    count.assign(count * 10)
    return count + np.int32(1)


show("effects in order", [ordered(), count])
