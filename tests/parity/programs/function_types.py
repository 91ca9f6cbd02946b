"""What concrete functions say of themselves, how they are called, and tensors that leave their function."""

import re

import tensorflow as tf
from _facts import error, show


@tf.function
def f(x, y=2, *, z=None):
    return {"a": x + float(y), "b": [x, tf.reduce_sum(x)]}


concrete = f.get_concrete_function(tf.TensorSpec([None, 2], tf.float32), 3)
show("name", [isinstance(concrete.name, bytes), concrete.name[:14]])
show("signature", str(concrete.structured_input_signature))
show("output", [str(concrete.structured_outputs["a"].shape), concrete.structured_outputs["b"][1].dtype.name])
show("outputs", [str(each.shape) for each in concrete.outputs])
show("type", str(concrete.function_type))
show("pretty", concrete.pretty_printed_signature().split("\n"))
show("one line", concrete.pretty_printed_signature(verbose=False))
show("text", [str(concrete)[:40], repr(concrete)[:30]])
show("captured", [len(concrete.captured_inputs), len(concrete.variables)])
show("the same", f.get_concrete_function(tf.TensorSpec([None, 2], tf.float32), 3) is concrete)

ones = tf.ones([3, 2])
for name, call in {
    "a tensor": lambda: concrete(ones)["b"][1],
    "by name": lambda: concrete(x=ones)["b"][1],
    "nothing": lambda: concrete(),
    "another constant": lambda: concrete(ones, 4),
    "too many": lambda: concrete(ones, 5, 6),
    "another type": lambda: concrete(tf.ones([3, 2], tf.int32)),
    "another name": lambda: concrete(q=1),
}.items():
    error(f"called with {name}", call)


@tf.function
def g(x):
    return x * 2


for name, value in {
    "a tensor": tf.constant([1.0, 2.0]),
    "a number": 3,
    "a spec": tf.TensorSpec([2], name="inp"),
}.items():
    show(f"signature of {name}", str(g.get_concrete_function(value).structured_input_signature))
show("a number is built in", g.get_concrete_function(3)())
g(tf.constant(1.0))
g(tf.constant(2.0))
show("all of them", g.pretty_printed_concrete_signatures().split("\n"))
show("all, one line", g.pretty_printed_concrete_signatures(verbose=False).split("\n"))


@tf.function
def many(a, *args, b=1, **kwargs):
    return a, args, kwargs["extra"]


structure = {"p": tf.TensorSpec([1], tf.float32), "q": [tf.constant(1), 2]}
nested = many.get_concrete_function(structure, tf.constant(3), 4, b=tf.constant(2.0), extra=tf.TensorSpec([], tf.int64))
show("nested signature", str(nested.structured_input_signature))
show("nested", nested.pretty_printed_signature(verbose=False))

for dtype in (tf.int64, tf.float64):
    wide = g.get_concrete_function(tf.TensorSpec([None], dtype))
    show(f"{dtype.name}", [wide.structured_outputs.dtype.name, wide(tf.constant([2**40], dtype))])

weights = tf.Variable([1.0, 2.0])


class Scale(tf.Module):
    @tf.function
    def __call__(self, x):
        return x * weights


scale = Scale()
method = scale.__call__.get_concrete_function(tf.TensorSpec([2], tf.float32))
show("method", str(method.structured_input_signature))
show("uses a variable", re.sub(r"\d{6,}", "ID", method.pretty_printed_signature()).split("\n"))
show("captured", len(method.captured_inputs))
RESULTS = {
    "none": lambda x: None,
    "a tuple": lambda x: (x, None, 3),
    "constants": lambda x, y="s", z=2.5, w=(1, "a"), q=[1], r={"a": 1}: None,  # noqa: B006
}
for name, function in RESULTS.items():
    spec = tf.TensorSpec([], tf.int32)
    show(name, tf.function(function).get_concrete_function(spec).pretty_printed_signature(verbose=False))

kept = []


@tf.function
def keeping(x):
    kept.append(x * 2.0)
    return x


keeping(tf.constant(1.0))
variable = tf.Variable(1.0)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
for name, use in {
    "numpy": lambda: kept[0].numpy(),
    "add": lambda: kept[0] + 1.0,
    "tf.add": lambda: tf.add(kept[0], 1.0),
    "float": lambda: float(kept[0]),
    "assign": lambda: variable.assign(kept[0]),
    "return": lambda: tf.function(lambda: kept[0])(),
    "in another function": lambda: tf.function(lambda x: x + kept[0])(tf.constant(1.0)),
    "as an argument": lambda: g(kept[0]),
    "iterate": lambda: list(kept[0]),
}.items():
    error(f"{name} of a tensor that has left its function", use)
kept.clear()
strategy.run(tf.function(lambda: kept.append(tf.distribute.get_replica_context().replica_id_in_sync_group + 1)))
error("of a replica", lambda: kept[0] + 1)
