"""A preemption handler restores the last checkpoint, saves when there is a notice, and ends the process its own way."""

import os
import signal
import tempfile
import time

import tensorflow as tf

folder = tempfile.mkdtemp()
experimental = tf.distribute.experimental


class Left(Exception):
    pass


def leave():
    raise Left


def make(name, config, manager=False):
    """A training of a sum and its handler, begun or restored."""
    total, done = tf.Variable(0.0), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(total=total, done=done)
    place = f"{folder}/{name}"
    if manager:
        managed = tf.train.CheckpointManager(checkpoint, place, max_to_keep=3)
        return total, done, experimental.PreemptionCheckpointHandler(None, managed, termination_config=config)
    return total, done, experimental.PreemptionCheckpointHandler(None, checkpoint, place, config)


def train(name, config, tell=None, steps=12, manager=False):
    total, done, handler = make(name, config, manager)
    began = int(done.numpy())

    @tf.function
    def step(x):
        total.assign(total * 0.5 + x)
        return total * 2.0

    try:
        while done < steps:
            result = handler.run(step, tf.cast(done, tf.float32))
            done.assign_add(1)
            assert handler.total_run_calls == int(done.numpy())
            if tell and done == 4:
                tell()
    except Left:
        print(
            name, "left after the notice:", 4 <= int(done.numpy()) < steps, int(done.numpy()) == handler.total_run_calls
        )
    else:
        print(name, "ended", done.numpy(), round(float(total.numpy()), 6), round(float(result), 6))
    return began


def kill():
    os.kill(os.getpid(), signal.SIGTERM)


train("whole", experimental.TerminationConfig(exit_fn=leave))

train("signal", experimental.TerminationConfig(exit_fn=leave), kill)
latest = tf.train.latest_checkpoint(f"{folder}/signal")
print(
    "saved as",
    os.path.basename(latest),
    sorted(k for k, _ in tf.train.list_variables(latest) if "done" in k or "runs" in k),
)
print("goes on:", train("signal", experimental.TerminationConfig(exit_fn=leave)) >= 4)

# With a manager, which keeps its own checkpoints, and saves with arguments of its own.
train("manager", experimental.TerminationConfig(exit_fn=leave), kill, manager=True)
print("goes on:", train("manager", None, manager=True) >= 4)

# A notice that is looked for.
told = []


def notice():
    told.append(1)
    time.sleep(1.5)  # Let it be seen.


train("watched", experimental.TerminationConfig(termination_watcher_fn=lambda: bool(told), exit_fn=leave), notice)
print("goes on:", train("watched", experimental.TerminationConfig(exit_fn=leave)) >= 4)

# An end that lets the program go on.
ends = []
train("going on", experimental.TerminationConfig(exit_fn=lambda: ends.append(1)), kill)
print("ends", len(ends))

# Saving of one's own, and loops that call their function themselves.
saves = []
total, done, handler = make(
    "own", experimental.TerminationConfig(exit_fn=leave, save_fn=lambda *a, **k: saves.append((a, k)))
)
try:
    with handler.watch_preemption_scope():
        for i in range(6):
            total.assign_add(1.0)
            done.assign_add(1)
            if i == 2:
                kill()
            handler.save_checkpoint_if_preempted("now", check_interval=False)
except Left:
    print("own", saves, handler.total_run_calls >= 2)

# The grace period is used: saved at once, and again when it is nearly over.
moments = []
_, _, handler = make(
    "grace", experimental.TerminationConfig(exit_fn=leave, grace_period=3, save_fn=lambda: moments.append(time.time()))
)
began = time.time()
try:
    for i in range(1000):
        handler.run(lambda: time.sleep(0.01))
        if i == 3:
            kill()
except Left:
    print("grace", len(moments), moments[1] - moments[0] > 1, moments[1] - began < 3.5)

config = experimental.TerminationConfig(1, 2, 3, 4)
print(config.termination_watcher_fn, config.exit_fn, config.grace_period, config.save_fn)
print(vars(experimental.TerminationConfig()))


def ps():
    cluster = tf.train.ClusterSpec({"ps": ["a:1"], "worker": ["b:1"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, task_type="worker", task_id=0)
    experimental.PreemptionCheckpointHandler(resolver, tf.train.Checkpoint(), folder)


try:
    ps()
except NotImplementedError as error:
    print(type(error).__name__)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
