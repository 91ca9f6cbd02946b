"""`tf.DeviceSpec`: names of devices taken apart and put together; where tensors lie."""

import tensorflow as tf
from _facts import error, show

Spec = tf.DeviceSpec
for name in (
    "/job:worker/replica:0/task:1/device:GPU:0",
    "/cpu:0",
    "gpu:1",
    "/device:TPU:*",
    "/job:a/cpu",
    "/device:cpu:0",
    "",
    tf.constant(1).device,
):
    spec = Spec.from_string(name)
    show(f"{name!r}", spec.to_string())
    show(f"{name!r} parts", [spec.job, spec.replica, spec.task, spec.device_type, spec.device_index])
for name in ("/device:XPU", "/foo:1", "/job:a/cpu:0/gpu:1", "/device:CPU:x", "/task:1:2"):
    error(f"{name!r}", lambda name=name: Spec.from_string(name))
show("made", Spec(job="w", replica="2", device_type="cpu", device_index="3").to_string())
show("merged", Spec(job="a", task=1).make_merged_spec(Spec(job="b", device_type="gpu")).to_string())
show("replaced", Spec(job="a", task=1).replace(task=2, device_type="GPU").to_string())
error("another part", lambda: Spec().replace(other=1))
error("assigned", lambda: setattr(Spec(), "job", "w"))
show("equal", [Spec(job="a") == Spec.from_string("/job:a"), Spec(job="a") == "/job:a", Spec() == Spec(task=0)])
show("as keys", len({Spec(task=1), Spec.from_string("/task:1"), Spec(task=2)}))
show("shown", repr(Spec(job="a")))
with tf.device(Spec(device_type="CPU", device_index=1)):
    tensor = tf.constant(1.0)
show("placed", [tensor.device, tensor.backing_device])


@tf.function
def inside(x):
    y = x + 1.0
    show("in a function", [x.device, y.device, hasattr(y, "backing_device")])
    return y


show("outside", inside(tf.constant(1.0)).device)
show("trace without a folder", tf.summary.trace_on(graph=True, profiler=True))
