"""Arithmetic in modules that import TensorFlow in one form or another, or inside of a function only."""

import sys
import types

from _facts import error

FORMS = {
    "as": "import tensorflow as tf; constant = tf.constant",
    "whole": "import tensorflow; constant = tensorflow.constant",
    "name": "from tensorflow import constant",
    "class": "from tensorflow.keras.layers import Dense; from elsewhere import constant",
    "submodule": "import tensorflow.keras.layers as layers; from elsewhere import constant",
    "function": "def constant(value):\n    from tensorflow import constant\n    return constant(value)",
    "importlib": "import importlib; constant = importlib.import_module('tensorflow').constant",
    "handed on": "from elsewhere import tf; constant = tf.constant",
}
RULES = """
def rules(i, f, b):
    i, f, b = constant(i), constant(f), constant(b)
    return {
        "int / int": lambda: i / i,
        "int / Python int": lambda: i / 2,
        "int // int": lambda: i // i,
        "int + Python float": lambda: i + 1.5,
        "int + float": lambda: i + f,
        "bool + bool": lambda: b + b,
        "bool * bool": lambda: b * b,
        "- bool": lambda: -b,
        "shapes": lambda: f + constant([1.0, 2.0, 3.0]),
        "out of range": lambda: f[2],
    }
"""


def load(name, source):
    """Return a module of this source, as if it lay in a file."""
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return module


load("elsewhere", "import tensorflow as tf; constant = tf.constant")
for form, source in FORMS.items():
    module = load("form", source + RULES)
    for name, call in module.rules([6, 4], [1.5, 2.5], [True, False]).items():
        error(f"{form}: {name}", call)
