"""Print which names of Keras's own an installation replaces, and what Keras itself has under the names it is given.

The argument is a list of [module, class or "", name] in JSON.
"""

import importlib
import inspect
import json
import operator
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import keras
import keras._tf_keras.keras


def owner_of(module, qualname):
    found = importlib.import_module(module)
    return operator.attrgetter(qualname)(found) if qualname else found


def parameters_of(module, qualname, name):
    """List the parameters, or return None for what is not a function; fails if Keras has no such name."""
    value = getattr(owner_of(module, qualname), name)
    return list(inspect.signature(value).parameters) if inspect.isroutine(value) else None


def snapshot():
    """What Keras's modules and classes hold: (module, class or "", name) to the value."""
    held = {}
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("keras.src.") or module is None:
            continue
        for name, value in list(vars(module).items()):
            if name.startswith("__"):
                continue
            held[module_name, "", name] = value
            if inspect.isclass(value) and value.__module__ == module_name:
                held |= {(module_name, value.__qualname__, key): entry for key, entry in vars(value).items()}
    return held


def is_inherited(module, qualname, name):
    return bool(qualname) and any(name in vars(base) for base in owner_of(module, qualname).__mro__[1:])


wanted = [tuple(entry) for entry in json.loads(sys.argv[1])]
parameters = [parameters_of(*entry) for entry in wanted]
before = snapshot()

import tfdist_jax.compat.tensorflow as tf

after, modules = snapshot(), {module for module, _, _ in before}
changed = [key for key in after if key in before and after[key] is not before[key]]
new = [key for key in after if key not in before and key[0] in modules]
replaced = changed + [key for key in new if is_inherited(*key)]
print(
    json.dumps({"parameters": parameters, "replaced": sorted(replaced), "version": [keras.__version__, tf.__version__]})
)
