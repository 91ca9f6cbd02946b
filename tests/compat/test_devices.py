"""Device names become devices; what is not there is replaced, with a warning, by something else."""

import types

import jax
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._platform import _devices
from tfdist_jax.compat.tensorflow._platform._devices import parse_device, resolve_devices


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("/gpu:1", ("GPU", 1)),
        ("/device:GPU:0", ("GPU", 0)),
        ("GPU:2", ("GPU", 2)),
        ("cpu:0", ("CPU", 0)),
        ("/cpu", ("CPU", 0)),
        ("/gpu:*", ("GPU", 0)),
        ("TPU:3", ("TPU", 3)),
        ("/device:XLA_CPU:0", ("CPU", 0)),
        ("/job:localhost/replica:0/task:0/device:CPU:1", ("CPU", 1)),
        ("/job:worker/task:1", None),
    ],
)
def test_device_names_are_read(name, place):
    assert parse_device(name) == place


@pytest.mark.parametrize("name", ["/disk:0", "gpu:x", "gpu 0", "/device:GPU:-1"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="A device is named like"):
        parse_device(name)


def test_named_devices_are_found_in_order():
    assert [device.id for device in resolve_devices(["/cpu:3", "/device:CPU:1"])] == [3, 1]


def test_missing_devices_stay_different_ones():
    with pytest.warns(UserWarning, match=r"There is no device '/gpu:\d': using"):
        devices = resolve_devices(["/gpu:0", "/cpu:0", "/gpu:1"])
    assert len(set(devices)) == 3 and devices[1].id == 0


def test_a_device_is_named_once():
    with pytest.raises(ValueError, match="named once"):
        resolve_devices(["/gpu:0", "GPU:0"])


def test_more_names_than_devices_are_refused_with_a_remedy():
    with pytest.raises(RuntimeError, match="--devices N"), pytest.warns(UserWarning):
        resolve_devices([f"/gpu:{i}" for i in range(9)])


def test_room_is_made_before_jax_starts(run_script):
    program = """
        import warnings
        warnings.simplefilter("ignore")
        import tfdist_jax.compat.tensorflow as tf
        strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1", "/gpu:2"])
        print(strategy.num_replicas_in_sync, len(tf.config.list_logical_devices("CPU")))
    """
    assert run_script(program, env={"JAX_PLATFORMS": "cpu"}).stdout == "3 3\n"


def test_room_that_is_there_is_kept(run_script):
    program = """
        import tfdist_jax.compat.tensorflow as tf
        tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
        print(len(tf.config.list_logical_devices()))
    """
    flags = "--xla_force_host_platform_device_count=4"
    assert run_script(program, env={"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}).stdout == "4\n"


def test_tensors_are_made_on_the_named_device():
    with tf.device("/cpu:2"):
        assert tf.constant(1.0).devices() == {jax.devices()[2]}
        with tf.device("/job:worker/task:0"):
            assert tf.zeros([1]).devices() == {jax.devices()[2]}
    with tf.device("/job:worker/task:0"):
        assert tf.zeros([1]).devices() == {jax.devices()[0]}
    with tf.device(tf.config.list_logical_devices()[1]):
        assert tf.zeros([1]).devices() == {jax.devices()[1]}


def test_missing_device_is_replaced_by_the_processor_unless_forbidden():
    with tf.device("/gpu:7"):
        assert tf.zeros([1]).devices() == {jax.devices()[0]}
    tf.config.set_soft_device_placement(False)
    try:
        assert not tf.config.get_soft_device_placement()
        with pytest.raises(tf.errors.InvalidArgumentError, match="there are 0 GPUs"), tf.device("/gpu:7"):
            pass
    finally:
        tf.config.set_soft_device_placement(True)


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 4), ("", 0), ("-1", 0), ("0", 1), ("2,3", 2), ("0,-1,1", 1), ("GPU-abc", 1)]
)
def test_nvidias_gpus_are_counted_as_cuda_shows_them(monkeypatch, visible, count):
    listing = {"/proc/driver/nvidia/gpus": ["a", "b", "c", "d"], "/dev": []}
    monkeypatch.setattr(_devices, "Path", lambda folder: types.SimpleNamespace(glob=lambda _: listing[folder]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _devices._count_nvidia() == count


def test_gpus_are_listed_and_set_up_without_starting_jax(run_script):
    program = """
        import os
        from tfdist_jax.compat.tensorflow._platform import _devices
        import tfdist_jax.compat.tensorflow as tf
        from tfdist_jax._internals import backends_are_initialized as started
        _devices._count_nvidia = lambda: 2
        _devices.has_plugin = lambda kind: kind == "cuda"
        gpus = tf.config.list_physical_devices("GPU")
        print([gpu.name for gpu in gpus])
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        print(os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"], tf.config.experimental.get_memory_growth(gpus[0]))
        tf.config.set_visible_devices(gpus[1], "GPU")
        print([gpu.name for gpu in tf.config.get_visible_devices("GPU")], started())
    """
    assert run_script(program).stdout.splitlines() == [
        "['/physical_device:GPU:0', '/physical_device:GPU:1']",
        "false True",
        "['/physical_device:GPU:1'] False",
    ]
