"""Fork after JAX has started, and use tensors in the child. Argument: what the child does."""

import multiprocessing
import sys

import numpy as np
import tensorflow as tf

variable = tf.Variable(tf.zeros((300, 300)))


@tf.function
def step():
    for _ in tf.range(1000):  # Takes longer than to fork.
        variable.assign_add(tf.matmul(variable, variable))


USES = {
    "nothing of JAX": lambda: np.ones(3).sum(),
    "operation": lambda: tf.ones(3) + 1,
    "compiled step": step,
    "dataset": lambda: list(tf.data.Dataset.range(3).map(lambda x: x + 1)),
    "array on its way": lambda: variable.numpy(),
}
step()
variable.numpy()
processes = multiprocessing.get_context("fork")


def work(queue, use):
    try:
        use()
        queue.put("done")
    except RuntimeError as error:
        queue.put(str(error))


queue = processes.SimpleQueue()
step()
process = processes.Process(target=work, args=(queue, USES[sys.argv[1]]))
process.start()
print(queue.get())
process.join()
variable.numpy()
