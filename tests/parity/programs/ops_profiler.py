"""Traces: one file each, errors of starting twice and of stopping nothing, named blocks."""

import pathlib
import tempfile

import tensorflow as tf
from _facts import error, show

profiler = tf.profiler.experimental


def traces(folder):
    return len(list(pathlib.Path(folder).rglob("*.xplane.pb")))


error("stop before start", profiler.stop)
with tempfile.TemporaryDirectory() as folder:
    profiler.start(folder)
    error("start twice", lambda: profiler.start(folder))
    with profiler.Trace("step", step_num=1, _r=1):
        show("inside a named block", (tf.constant(1.0) + 1.0).numpy())
    show("before stop", traces(folder))
    profiler.stop()
    show("after stop", traces(folder))
error("stop twice", profiler.stop)
with tempfile.TemporaryDirectory() as folder:
    with profiler.Profile(folder):
        error("start in a profile", lambda: profiler.start(folder))
    show("after a profile", traces(folder))
