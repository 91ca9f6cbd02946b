"""Signatures of a SavedModel: the default one, several, their arguments and results by name."""

import os
import tempfile

import tensorflow as tf
from _facts import error, show

folder = os.path.join(tempfile.mkdtemp(), "model")
scalar = tf.TensorSpec([], tf.float32)


class Functions(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(2.0)

    @tf.function(input_signature=[scalar, tf.TensorSpec([], tf.float32, name="second")])
    def two(self, a, b):
        return a * self.w, b

    @tf.function(input_signature=[scalar])
    def by_name(self, a):
        return {"z": a, "y": a + 1.0}

    @tf.function(input_signature=[{"p": scalar, "q": tf.TensorSpec([None], tf.int32)}])
    def structure(self, a):
        return a["p"] + tf.cast(tf.reduce_sum(a["q"]), tf.float32)

    @tf.function(input_signature=[scalar])
    def deep(self, a):
        return {"z": {"u": a}}

    @tf.function
    def free(self, a):
        return a * self.w


functions = Functions()
tf.saved_model.save(functions, folder)
show("several, none chosen", list(tf.saved_model.load(folder).signatures))

tf.saved_model.save(functions, folder, signatures=functions.by_name)
loaded = tf.saved_model.load(folder)
show("default", list(loaded.signatures))
served = loaded.signatures["serving_default"]
show("takes", str(served.structured_input_signature))
show("gives", str(sorted(served.structured_outputs.items())))
show("called", sorted((key, value) for key, value in served(a=tf.constant(1.0)).items()))
show("by position", sorted((key, value) for key, value in served(tf.constant(1.0)).items()))
error("no signature", lambda: loaded.signatures["other"])
show("DEFAULT", tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY)

free = functions.free.get_concrete_function(tf.TensorSpec([None], tf.float32))
chosen = {"two": functions.two, "structure": functions.structure, "free": free}
tf.saved_model.save(functions, folder, signatures=chosen)
loaded = tf.saved_model.load(folder)
signatures = loaded.signatures
show("names", sorted(signatures))
for name in sorted(signatures):
    show(
        name,
        [
            sorted(signatures[name].structured_input_signature[1]),
            str(sorted(signatures[name].structured_outputs.items())),
        ],
    )
show("two", signatures["two"](a=tf.constant(1.0), second=tf.constant(3.0)))
show("structure", signatures["structure"](a=tf.constant(1.0), a_1=tf.constant([1, 2, 3])))
for rows in (1, 4):
    show("free", signatures["free"](tf.ones([rows])))
error("two by position", lambda: signatures["two"](tf.constant(1.0), tf.constant(2.0)))
error("one missing", lambda: signatures["two"](a=tf.constant(1.0)))
error("wrong name", lambda: signatures["free"](x=tf.ones([1])))
show("variables", [variable.name for variable in signatures["two"].variables])

error("nested results", lambda: tf.saved_model.save(functions, folder, signatures={"n": functions.deep}))
error("without signature", lambda: tf.saved_model.save(functions, folder, signatures=functions.free))
error("no function", lambda: tf.saved_model.save(functions, folder, signatures={"a": lambda x: x}))


class One(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64, name="rows")])
    def serve(self, x):
        return tf.reduce_mean(x, axis=1), tf.cast(x, tf.int64), x > 1.0

    @tf.function
    def other(self, x):
        return x


tf.saved_model.save(One(), folder)
loaded = tf.saved_model.load(folder)
one = loaded.signatures
show("the only one", list(one))
for rows in (1, 3):
    outputs = one["serving_default"](rows=tf.fill([rows, 2], tf.constant(1.5, tf.float64)))
    show("types", [(key, outputs[key].dtype.name, outputs[key]) for key in sorted(outputs)])
