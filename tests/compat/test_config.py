"""`tf.config`: devices, memory and precision."""

import jax
import pytest

import tfdist_jax.compat.tensorflow as tf

CPU = tf.config.PhysicalDevice("/physical_device:CPU:0", "CPU")
GPU = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")


@pytest.fixture
def started():
    jax.devices()


def test_processor_is_one_physical_and_many_logical_devices(started):
    assert tf.config.list_physical_devices("CPU") == [CPU] == tf.config.list_physical_devices()
    assert tf.config.list_physical_devices("GPU") == [] == tf.config.list_logical_devices("GPU")
    logical = tf.config.list_logical_devices("CPU")
    assert [device.name for device in logical] == [f"/device:CPU:{i}" for i in range(8)]
    assert tf.config.get_visible_devices() == [CPU]


def test_processor_is_split_before_jax_starts(run_script):
    program = """
        import tfdist_jax.compat.tensorflow as tf
        cpu, = tf.config.list_physical_devices("CPU")
        print(tf.config.get_logical_device_configuration(cpu))
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
        print(len(tf.config.get_logical_device_configuration(cpu)), len(tf.config.list_logical_devices()))
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    """
    ran = run_script(program, env={"JAX_PLATFORMS": "cpu"})
    assert ran.stdout == "None\n3 3\n"
    assert "RuntimeError: Virtual devices cannot be modified after being initialized" in ran.stderr


def test_older_names_split_the_processor_too(run_script):
    program = """
        import tfdist_jax.compat.tensorflow as tf
        experimental = tf.config.experimental
        cpu, = experimental.list_physical_devices("CPU")
        experimental.set_virtual_device_configuration(cpu, [experimental.VirtualDeviceConfiguration()] * 2)
        print(len(experimental.list_logical_devices("CPU")))
    """
    assert run_script(program, env={"JAX_PLATFORMS": "cpu"}).stdout == "2\n"


def test_gpus_can_be_hidden_before_jax_starts(run_script):
    program = """
        from tfdist_jax.compat.tensorflow._platform import _devices
        import tfdist_jax.compat.tensorflow as tf
        import jax
        _devices._count_nvidia, _devices.has_plugin = (lambda: 2), (lambda kind: kind == "cuda")
        tf.config.set_visible_devices([], "GPU")
        print(tf.config.get_visible_devices("GPU"), jax.default_backend())
    """
    assert run_script(program).stdout == "[] cpu\n"


def test_accelerators_cannot_be_split(started):
    parts = [tf.config.LogicalDeviceConfiguration(memory_limit=1024)]
    tf.config.set_logical_device_configuration(GPU, parts)
    with pytest.raises(NotImplementedError, match=r"cannot be split.*split the processor"):
        tf.config.set_logical_device_configuration(GPU, parts * 2)


def test_nothing_can_be_set_up_once_jax_has_started(started, monkeypatch):
    # Real TensorFlow, which Keras imports where it is installed, sets the second one.
    for variable in ("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RuntimeError, match="cannot be modified after being initialized"):
        tf.config.experimental.set_memory_growth(GPU, True)
    with pytest.raises(RuntimeError, match="cannot be modified after being initialized"):
        tf.config.set_visible_devices([GPU], "GPU")
    with pytest.raises(RuntimeError, match="cannot be modified after being initialized"):
        tf.config.set_visible_devices([], "CPU")
    tf.config.experimental.set_memory_growth(GPU, False)
    tf.config.set_visible_devices([CPU], "CPU")


def test_processor_has_no_memory_growth(started):
    with pytest.raises(ValueError, match="non-GPU"):
        tf.config.experimental.set_memory_growth(CPU, True)
    assert tf.config.experimental.get_device_details(CPU) == {}


def test_memory_is_told_by_devices_that_count_it(started):
    with pytest.raises(ValueError, match="No allocator statistics"):
        tf.config.experimental.get_memory_info("CPU:0")
    with pytest.raises(ValueError, match="There is no device 'GPU:0'"):
        tf.config.experimental.get_memory_usage("GPU:0")


def test_precision_of_float32_matrices_can_be_chosen():
    before = jax.config.jax_default_matmul_precision
    try:
        assert tf.config.experimental.tensor_float_32_execution_enabled()
        tf.config.experimental.enable_tensor_float_32_execution(False)
        assert not tf.config.experimental.tensor_float_32_execution_enabled()
        assert jax.config.jax_default_matmul_precision == "highest"
        tf.config.experimental.enable_tensor_float_32_execution(True)
        assert tf.config.experimental.tensor_float_32_execution_enabled()
    finally:
        jax.config.update("jax_default_matmul_precision", before)


def test_determinism_is_asked_for_before_jax_starts(run_script, started, monkeypatch):
    program = """
        import os
        import tfdist_jax.compat.tensorflow as tf
        for _ in range(2):
            tf.config.experimental.enable_op_determinism()
        print(os.environ["XLA_FLAGS"])
    """
    assert run_script(program, env={"XLA_FLAGS": ""}).stdout == "--xla_gpu_deterministic_ops=true\n"
    monkeypatch.setenv("XLA_FLAGS", "")
    with pytest.raises(RuntimeError, match="before the first computation"):
        tf.config.experimental.enable_op_determinism()


def test_tests_are_told_what_there_is():
    assert not tf.test.is_gpu_available() and tf.test.gpu_device_name() == "" and tf.test.is_built_with_xla()
    assert not tf.test.is_built_with_gpu_support() and tf.sysconfig.get_build_info()["is_cuda_build"] is False
    assert tf.version.VERSION == tf.__version__ == "2.21.0"


def test_switches_of_tensorflows_runtime_are_accepted():
    tf.config.experimental.disable_mlir_bridge()
    tf.config.experimental.enable_mlir_bridge()
    tf.data.experimental.enable_debug_mode()
