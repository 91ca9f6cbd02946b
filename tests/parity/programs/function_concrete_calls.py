"""How concrete functions are called: by name, with structures or with tensors one by one; constants; what they say."""

import collections

import tensorflow as tf
from _facts import error, show

c, Spec = tf.constant, tf.TensorSpec
scalar = Spec([])
Pair = collections.namedtuple("Pair", "a b")

named = tf.function(lambda x: x * 2.0).get_concrete_function(Spec([], name="y"))
show("by the spec's name", named(y=c(3.0)))
show("by position", named(c(3.0)))
same = tf.function(lambda x, y: x - y).get_concrete_function(Spec([], name="q"), Spec([], name="q"))
show("the same name twice", same(q=c(1.0), q_1=c(2.0)))

nested = tf.function(lambda x, y: x["a"] + x["b"] - y).get_concrete_function(
    {"a": scalar, "b": scalar}, Spec([], name="z")
)
parts = {"a": c(1.0), "b": c(2.0)}
show("structure", nested(parts, c(5.0)))
show("structure by name", nested(x=parts, y=c(5.0)))
show("one by one", nested(c(1.0), c(2.0), c(5.0)))
show("one by one by name", nested(x=c(1.0), x_1=c(2.0), z=c(5.0)))
error("names of keys", lambda: nested(a=c(1.0), b=c(2.0), z=c(5.0)))
error("structure and the spec's name", lambda: nested(parts, z=c(5.0)))
error("a key is missing", lambda: nested({"a": c(1.0)}, c(5.0)))
error("another key", lambda: nested(dict(parts, d=c(3.0)), c(5.0)))
error("a list for a dictionary", lambda: nested([c(1.0), c(2.0)], c(5.0)))

listed = tf.function(lambda x: x[0] + x[1]).get_concrete_function([scalar, scalar])
show("list", listed([c(1.0), c(2.0)]))
show("list, one by one", [listed(c(1.0), c(2.0)), listed(x=c(1.0), x_1=c(2.0))])
error("a tuple for a list", lambda: listed((c(1.0), c(2.0))))
error("a longer list", lambda: listed([c(1.0), c(2.0), c(3.0)]))
paired = tf.function(lambda p: p.a - p.b).get_concrete_function(Pair(scalar, scalar))
show("named tuple", [paired(Pair(c(1.0), c(2.0))), paired(c(1.0), c(2.0))])
error("a tuple for a named one", lambda: paired((c(1.0), c(2.0))))

constant = tf.function(lambda x, k: x * k).get_concrete_function(scalar, 2.0)
show("constant", [constant(c(1.0), 2.0), constant(c(1.0)), constant(c(1.0), k=2.0)])
error("another constant", lambda: constant(c(1.0), 3.0))
default = tf.function(lambda x, k=2.0: x * k).get_concrete_function(scalar)
show("default", default(c(1.0)))
error("another value for a default", lambda: default(c(1.0), k=3.0))
boolean = tf.function(lambda x, b: x if b else -x).get_concrete_function(scalar, True)
show("boolean", boolean(c(1.0), True))
error("another boolean", lambda: boolean(c(1.0), False))

single = tf.function(lambda x: x + 1.0).get_concrete_function(scalar)
show("a number", single(1.0))
for label, call in {
    "too many": lambda: single(c(1.0), c(2.0)),
    "none": lambda: single(),
    "twice": lambda: single(c(1.0), x=c(2.0)),
    "another name": lambda: single(c(1.0), q=c(2.0)),
    "another type": lambda: single(c(1)),
}.items():
    error(label, call)
for shape in (None, [None], [None, 2]):
    any_shape = tf.function(lambda x: x + 1.0).get_concrete_function(Spec(shape))
    show(f"shape {shape}", [any_shape(tf.ones([3, 2])) if shape != [None] else any_shape(tf.ones([3]))])
    show(f"results of shape {shape}", str(any_shape.structured_outputs.shape))

v = tf.Variable(2.0)
used = tf.function(lambda x, y=1: x * v + y).get_concrete_function(Spec([None]))
kind = used.function_type
show("parameters", [str(each) for each in kind.parameters.values()])
show("of one", [kind.parameters["x"].kind.name, str(kind.parameters["x"].type_constraint), kind.parameters["x"].name])
show("output", str(kind.output))
show("captures", len(kind.captures))
show("type", str(kind))

limited = tf.function(lambda a, training=True: a if training else -a, input_signature=[scalar])
show("a default beside the signature", [limited(c(1.0)), limited(c(1.0), True), limited(a=c(1.0))])
error("another value for it", lambda: limited(c(1.0), False))
error("another value for it by name", lambda: limited(c(1.0), training=False))
show("its signature", str(limited.get_concrete_function().structured_input_signature))
both = tf.function(lambda a, training=True: a if training else -a, input_signature=[scalar, Spec([], tf.bool)])
show("a default in the signature", [both(c(1.0)), both(c(1.0), False), both(c(1.0), training=c(False))])
error("nothing", lambda: both())
several = tf.function(lambda *xs: tf.add_n(xs), input_signature=[scalar, scalar])
show("several", several(c(1.0), c(2.0)))
error("fewer", lambda: several(c(1.0)))
error("more", lambda: several(c(1.0), c(2.0), c(3.0)))
by_name = tf.function(lambda x, *, k=2.0: x * k, input_signature=[scalar])
show("default of a parameter by name", by_name(c(1.0)))
error("another value for a parameter by name", lambda: by_name(c(1.0), k=3.0))
any_rank = tf.function(lambda x: x, input_signature=[Spec(None)])
show("unknown rank", [any_rank.get_concrete_function(Spec(None))(c(1.0)), any_rank(c([1.0]))])
