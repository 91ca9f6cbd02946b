"""Python control flow on tensors."""

import tensorflow as tf
from _facts import show


@tf.function
def collatz(n):
    steps = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


show("collatz", [collatz(tf.constant(n)) for n in (1, 6, 27)])
show("traced once", collatz.experimental_get_tracing_count())


@tf.function
def positive_until_ten(values):
    total = 0.0
    for value in values:
        if value < 0:
            continue
        if value > 10:
            break
        total += value
    return total


show("break and continue", positive_until_ten(tf.constant([1.0, -2.0, 3.0, 11.0, 5.0])))
show("never broken", positive_until_ten(tf.constant([1.0, 2.0])))
show("no entries", positive_until_ten(tf.zeros([0])))


@tf.function
def sign(x):
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0


show("early returns", [sign(tf.constant(x)) for x in (2.5, -1.0, 0.0)])


@tf.function
def squares(n):
    found = tf.TensorArray(tf.int32, size=5)
    for i in tf.range(n):
        found = found.write(i, i * i)
    return found.stack()


show("tensor array", squares(tf.constant(5)))


@tf.function
def logic(a, b):
    if (a > 0 and not b > 0) or a == 7:
        text, value = "first", a
    else:
        text, value = "first", b
    return value if a < 100 and b != 3 else -value


show("logic", [logic(tf.constant(a), tf.constant(b)) for a, b in ((1, -1), (1, 1), (7, 7), (100, 2), (1, 3))])


@tf.function
def nested(n, m):
    count = 0
    for i in tf.range(n):
        for j in range(3):
            if i > j:
                count += 1
        k = i
        while k < m:
            k += 2
            count += 10
    return count


show("nested loops", nested(tf.constant(3), tf.constant(4)))


@tf.function
def python_values(x, flag, names):
    if flag:
        x = x + 1
    for name in names:
        if name == "double":
            x = x * 2
    return x


show("Python conditions", [python_values(tf.constant(3), True, ["double"]), python_values(tf.constant(3), False, [])])


def helper(x):
    if x > 2:
        return x * 2
    return x


@tf.function
def calls(x):
    return helper(x) + (lambda y: -y if y > 0 else y)(x)


show("called functions", [calls(tf.constant(x)) for x in (1, 3)])


@tf.function
def fizzbuzz(n):
    text = tf.constant(0)
    for i in tf.range(1, n + 1):
        if i % 15 == 0:
            text += 100
        elif i % 5 == 0:
            text += 10
        elif i % 3 == 0:
            text += 1
        else:
            pass
    return text


show("range with start", fizzbuzz(tf.constant(15)))


@tf.function
def countdown(x, delta):
    total = 0
    for i in tf.range(x, 0, delta):
        total = total * 10 + i
    return total


show("range downwards", countdown(tf.constant(5), tf.constant(-2)))


@tf.function
def defined_inside(n):
    for i in tf.range(n):
        last = i * 2
    return last


show("defined in the loop", defined_inside(tf.constant(4)))


@tf.function
def dynamic_rnn(inputs, state):
    outputs = tf.TensorArray(tf.float32, size=inputs.shape[0])
    for t in tf.range(inputs.shape[0]):
        state = tf.tanh(inputs[t] + state)
        outputs = outputs.write(t, state)
    return outputs.stack(), state


show("recurrent", dynamic_rnn(tf.constant([[0.1], [0.2], [0.3]]), tf.zeros([1])))


@tf.function(autograph=False)
def unconverted(x):
    return tf.cond(x > 0, lambda: x, lambda: -x)


show("tf.cond", [unconverted(tf.constant(-3)), unconverted(tf.constant(3))])


@tf.autograph.experimental.do_not_convert
def left_alone(x):
    return x + 1


show("do_not_convert", tf.function(lambda x: left_alone(x))(tf.constant(1)))
show("to_code", "ag__" in tf.autograph.to_code(helper))
show("to_graph", tf.autograph.to_graph(helper)(tf.constant(5)))
