"""Interrupt a method of a model as it is traced, where scopes begin and end; prints how often, and what was not as before, as JSON.

Arguments: the method, and every how manyth place is tried.
"""

import contextvars
import json
import sys

import jax
import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.global_state import GLOBAL_STATE_TRACKER

from tfdist_jax import _signals
from tfdist_jax._internals import _thread_settings
from tfdist_jax.testing._interruptions import Interruption, _Place

name, every = sys.argv[1], int(sys.argv[2])
strategy = tf.distribute.MirroredStrategy()
x, y = np.ones((64, 4), np.float32), np.zeros((64, 1), np.float32)
_IS_GENERATOR = 0x20


class ScopePlace(_Place):
    """The place with a number of those in generators, and in methods that begin or end a block."""

    def _enter(self, frame, event, arg):
        code = frame.f_code
        is_scope = code.co_flags & _IS_GENERATOR or code.co_name in ("__enter__", "__exit__")
        return super()._enter(frame, event, arg) if is_scope else None


def make_model():
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    return model


def use(model):
    data = (x,) if name.startswith("predict") else (x, y)
    return getattr(model, name)(*data, **({} if name.endswith("on_batch") else {"verbose": 0}))


def default_of(variable):
    try:
        return contextvars.Context().run(variable.get)
    except LookupError:
        return None


def hold():
    """Return what holds for this thread, by name; what is as in a new thread is left out."""
    variables = {v: value for v, value in contextvars.copy_context().items() if value is not default_of(v)}
    settings = {str(i): each.get_local() for i, each in enumerate(_thread_settings())}
    # Variables that are to get their first values do so when the next scope ends.
    others = "uninitialized_variables", "object_name_uids"
    scopes = {key: value for key, value in vars(GLOBAL_STATE_TRACKER).items() if value and key not in others}
    scopes = {key: [*value] if isinstance(value, list) else value for key, value in scopes.items()}
    return {
        **{v.name: value for v, value in variables.items()},
        **settings,
        **scopes,
        "signals": _signals._section.depth,
    }


use(make_model())
interrupted, different = 0, {}
while True:
    model = make_model()
    before = hold()
    interruption = Interruption(ScopePlace(interrupted * every))
    with interruption:
        use(model)
    after = hold()
    changed = [
        key
        for key in {**before, **after}
        if before.get(key) is not after.get(key) and before.get(key) != after.get(key)
    ]
    changed += [v.path for v in (*model.weights, *model.optimizer.variables) if isinstance(v.value, jax.core.Tracer)]
    if changed:
        different[str(interruption.place)] = changed
        break
    if interruption.place is None:
        break
    interrupted += 1
use(model)
print(json.dumps({"interrupted": interrupted, "different": different}))
