"""Print what an installation changes in Keras and what is left of that afterwards; and what Keras itself has under given names.

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
    return (
        list(inspect.signature(value).parameters) if inspect.isroutine(value) and not inspect.isbuiltin(value) else None
    )


def snapshot():
    """What Keras's modules and classes hold: (module, class or "", name) to the value."""
    held = {}
    for module_name, module in list(sys.modules.items()):
        if module is None or not f"{module_name}.".startswith("keras."):
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


def differing(held):
    """List what is other than it was at first, in the modules that were there."""
    keys = [key for key in before.keys() | held.keys() if key[0] in modules]
    return sorted(key for key in keys if held.get(key, ABSENT) is not before.get(key, ABSENT))


ABSENT = object()
wanted = [tuple(entry) for entry in json.loads(sys.argv[1])]
parameters = [parameters_of(*entry) for entry in wanted]
before = snapshot()
modules = {module for module, _, _ in before}

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._install import install, uninstall

changed = differing(snapshot())
added = [key for key in changed if key not in before and not is_inherited(*key)]
uninstall()
left = differing(snapshot())
install()
print(
    json.dumps(
        {
            "parameters": parameters,
            "added": added,
            "replaced": [key for key in changed if key not in added],
            "left": left,
            "again": differing(snapshot()) == changed,
            "version": [keras.__version__, tf.__version__],
        }
    )
)
