"""A MultiWorkerMirroredStrategy of one worker, as TF_CONFIG describes it: its resolver, devices, options and results."""

import json
import os

import numpy as np
from _facts import error, show

address = f"localhost:{20000 + os.getpid() % 9000}"
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": [address]}, "task": {"type": "worker", "index": 0}})

import tensorflow as tf  # noqa: E402

experimental = tf.distribute.experimental
Options, Implementation = experimental.CommunicationOptions, experimental.CommunicationImplementation
strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=Options(implementation=Implementation.RING, timeout_seconds=60.0)
)
resolver = strategy.cluster_resolver
show("resolver", [type(resolver).__name__, resolver.task_type, resolver.task_id, resolver.rpc_layer])
show("cluster", [resolver.cluster_spec().as_dict() == {"worker": [address]}, resolver.master("worker", 0) == address])
show("first device", strategy.extended.worker_devices[0])
show("same devices", strategy.extended.worker_devices == strategy.extended.parameter_devices)
with strategy.scope():
    variable = tf.Variable([1.0])
show("where tensors are", [tf.constant(1.0).device, tf.constant("text").device, (variable + 1).device, variable.device])
with tf.device("/cpu:0"):
    show("on a device", [tf.zeros([1]).device, tf.Variable(1).device])
show("logical devices", tf.config.list_logical_devices("CPU")[0].name)
show("physical devices", tf.config.list_physical_devices("CPU")[0].name)
show("in a replica", strategy.experimental_local_results(strategy.run(lambda: 1.0))[0])
other = experimental.MultiWorkerMirroredStrategy(Implementation.RING, resolver)
kinds = [tf.distribute.MultiWorkerMirroredStrategy, experimental.MultiWorkerMirroredStrategy, tf.distribute.Strategy]
show("kinds", [[isinstance(one, kind) for kind in kinds] for one in (strategy, other, tf.distribute.get_strategy())])
show("of one kind", [type(other) is kinds[1], type(strategy) is kinds[1], issubclass(kinds[1], kinds[0])])
show("other resolver", other.cluster_resolver is resolver)
tpu = [tf.distribute.TPUStrategy, experimental.TPUStrategy]
show("on TPU", [[issubclass(one, kind) for kind in tpu] for one in tpu])
for name in ("should_checkpoint", "should_save_summary", "experimental_between_graph", "experimental_should_init"):
    show(name, getattr(strategy.extended, name))
error("no resolver", lambda: tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=3))
error("no options", lambda: tf.distribute.MultiWorkerMirroredStrategy(communication_options="RING"))


def facts(options):
    """What options say."""
    return [options.bytes_per_pack, options.timeout_seconds, options.implementation.name]


show("options", facts(Options()))
show("by name", facts(Options(implementation="NCCL")))
error("no such way", lambda: Options(implementation="TREE"))
error("negative", lambda: Options(bytes_per_pack=-1))
some = Options(bytes_per_pack=3, timeout_seconds=2.0)
show("merged", facts(some.merge(Options(implementation="RING"))))
show("merged with others", facts(some.merge(Options(4, 5.0, Implementation.NCCL))))
show("merged with none", facts(some.merge(None)))
show("not changed", facts(some))
show("hints", facts(experimental.CollectiveHints(bytes_per_pack=5)))
show("ways", [way.name for way in experimental.CollectiveCommunication])

rows = tf.data.Dataset.from_tensor_slices(np.arange(8.0, dtype="f4")).batch(8)
total = 0.0
for batch in strategy.experimental_distribute_dataset(rows):
    sums = strategy.run(tf.reduce_sum, args=(batch,))
    total += float(strategy.reduce("SUM", sums, axis=None))
    show("gathered", strategy.gather(batch, axis=0))
show("total", total)
context = []
strategy.distribute_datasets_from_function(lambda given: context.append(given) or rows)
show("context", [context[0].num_input_pipelines, context[0].input_pipeline_id])

with strategy.scope():
    x = tf.keras.Input((2,), name="x")
    zeros = {"kernel_initializer": "zeros"}
    model = tf.keras.Model(
        {"x": x}, {"z": tf.keras.layers.Dense(1, **zeros)(x), "a": tf.keras.layers.Dense(2, **zeros)(x)}
    )
    model.compile("sgd", {"z": "mse", "a": "mse"})
predicted = model.predict({"x": np.ones((3, 2), "f4")}, verbose=0)
show("predicted", [[name, list(value.shape)] for name, value in predicted.items()])
