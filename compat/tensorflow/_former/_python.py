"""`tensorflow.python`: TensorFlow's private code, as far as its names have public ones."""

import functools
from typing import Any

from tfdist_jax.compat.tensorflow._former._keras_modules import KERAS_MODULES
from tfdist_jax.compat.tensorflow._former._views import View
from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form

NAME = "tensorflow.python"

# Functions with these names take other arguments, or mean something else, in private modules.
_VERSION_1_NN = "-dropout -conv1d -depthwise_conv2d -separable_conv2d -moments -pool -convolution -ctc_loss -embedding_lookup_sparse"
_RANDOM = (
    "tf.random random_uniform=tf.random.uniform random_normal=tf.random.normal random_shuffle=tf.random.shuffle "
    "truncated_normal=tf.random.truncated_normal random_gamma=tf.random.gamma set_random_seed=tf.random.set_seed"
)
_NN = f"tf.nn {_VERSION_1_NN} dropout_v2=tf.nn.dropout conv2d_v2=tf.nn.conv2d moments_v2=tf.nn.moments max_pool_v2=tf.nn.max_pool"
_DEVICES = "tf.config tf.config.experimental"
_STRATEGIES = "tf.distribute tf.distribute.experimental"
_ERRORS = "tf.errors"

_DATA_FILES = (
    "batching cardinality counter distribute enumerate_ops error_ops get_single_element grouping "
    "interleave_ops prefetching_ops random_ops resampling scan_ops shuffle_ops take_while_ops unique"
)
_DISTRIBUTE_FILES = (
    "central_storage_strategy collective_all_reduce_strategy collective_util distribute_lib mirrored_strategy "
    "one_device_strategy parameter_server_strategy parameter_server_strategy_v2 reduce_util cross_device_ops "
    "distribution_strategy_context distribute_utils values"
)

_MODULES = {
    "autograph": "tf.autograph",
    "autograph.impl.api": "tf.autograph do_not_convert=tf.autograph.experimental.do_not_convert",
    "client.device_lib": "_former._device_lib",
    "compat.compat": "tf.compat",
    "compat.v2_compat": "tf.compat.v1",
    "data": "tf.data",
    "data.experimental": "tf.data.experimental",
    "data.experimental.ops": "tf.data.experimental",
    **{f"data.experimental.ops.{name}": "tf.data.experimental" for name in _DATA_FILES.split()},
    "data.ops.dataset_ops": (
        "tf.data AUTOTUNE=tf.data.AUTOTUNE DatasetV2=tf.data.Dataset get_structure=tf.data.experimental.get_structure"
    ),
    "data.ops.iterator_ops": "tf.data IteratorBase=tf.data.Iterator",
    "data.ops.multi_device_iterator_ops": "tf.data",
    "data.ops.options": "tf.data tf.data.experimental",
    "data.util.nest": "tf.nest",
    "distribute": _STRATEGIES,
    **{f"distribute.{name}": _STRATEGIES for name in _DISTRIBUTE_FILES.split()},
    "distribute.collective_all_reduce_strategy": (
        f"{_STRATEGIES} CollectiveAllReduceStrategy=tf.distribute.MultiWorkerMirroredStrategy"
    ),
    "distribute.mirrored_strategy": f"{_STRATEGIES} all_local_devices=_former._former_names.all_local_devices",
    "distribute.tpu_strategy": f"{_STRATEGIES} TPUStrategyV2=tf.distribute.TPUStrategy",
    "distribute.cluster_resolver": "tf.distribute.cluster_resolver",
    "distribute.cluster_resolver.cluster_resolver": "tf.distribute.cluster_resolver",
    "distribute.cluster_resolver.tfconfig_cluster_resolver": "tf.distribute.cluster_resolver",
    "distribute.cluster_resolver.tpu_cluster_resolver": "tf.distribute.cluster_resolver",
    "distribute.cluster_resolver.tpu.tpu_cluster_resolver": "tf.distribute.cluster_resolver",
    "distribute.cluster_resolver.slurm_cluster_resolver": "tf.distribute.cluster_resolver",
    "eager.backprop": "GradientTape=tf.GradientTape",
    "eager.context": f"_former._eager_context {_DEVICES} executing_eagerly=tf.executing_eagerly",
    "eager.def_function": "function=tf.function run_functions_eagerly=tf.config.run_functions_eagerly",
    "eager.polymorphic_function.def_function": "function=tf.function",
    "eager.forwardprop": "tf.autodiff",
    "eager.monitoring": "_former._monitoring",
    "eager.function": "function=tf.function ConcreteFunction=tf.types.experimental.ConcreteFunction",
    **{
        f"feature_column.{name}": "tf.feature_column _former._column_classes"
        for name in ("feature_column_lib", "feature_column_v2", "sequence_feature_column", "serialization")
    },
    "framework.config": _DEVICES,
    "framework.constant_op": "constant=tf.constant convert_to_tensor=tf.convert_to_tensor constant_v1=tf.constant",
    "framework.convert_to_constants": (
        "convert_variables_to_constants_v2=_former._former_names.convert_variables_to_constants "
        "convert_variables_to_constants_v2_as_graph=_former._former_names.convert_variables_to_constants"
    ),
    "framework.device": "DeviceSpec=tf.DeviceSpec",
    "framework.dtypes": "tf.dtypes",
    "framework.errors": _ERRORS,
    "framework.errors_impl": _ERRORS,
    "framework.indexed_slices": "IndexedSlices=tf.IndexedSlices",
    "framework.ops": (
        "tf.errors RegisterStatistics=_former._decorators.RegisterStatistics "
        "EagerTensor=tf.Tensor Tensor=tf.Tensor IndexedSlices=tf.IndexedSlices "
        "convert_to_tensor=tf.convert_to_tensor convert_to_tensor_v2=tf.convert_to_tensor "
        "convert_to_tensor_v2_with_dispatch=tf.convert_to_tensor control_dependencies=tf.control_dependencies "
        "device=tf.device device_v2=tf.device name_scope=tf.name_scope name_scope_v2=tf.name_scope name_scope_v1=tf.name_scope "
        "init_scope=tf.init_scope inside_function=tf.inside_function is_dense_tensor_like=tf.is_tensor "
        "is_symbolic_tensor=tf.is_symbolic_tensor get_name_scope=tf.get_current_name_scope "
        "executing_eagerly_outside_functions=tf.compat.v1.executing_eagerly_outside_functions "
        "enable_eager_execution=tf.compat.v1.enable_eager_execution "
        "disable_eager_execution=tf.compat.v1.disable_eager_execution"
    ),
    "framework.random_seed": "set_seed=tf.random.set_seed set_random_seed=tf.random.set_seed",
    "framework.smart_cond": "smart_cond=_former._former_names.smart_cond",
    "framework.sparse_tensor": "SparseTensor=tf.SparseTensor SparseTensorSpec=tf.SparseTensorSpec is_sparse=tf.keras.backend.is_sparse",
    "framework.tensor": "Tensor=tf.Tensor TensorSpec=tf.TensorSpec",
    "framework.tensor_shape": (
        "TensorShape=tf.TensorShape dimension_value=tf.compat.dimension_value as_shape=tf.TensorShape "
        "unknown_shape=_former._former_names.unknown_shape"
    ),
    "framework.tensor_spec": "TensorSpec=tf.TensorSpec",
    "framework.tensor_util": ("is_tensor=tf.is_tensor is_tf_type=tf.is_tensor constant_value=tf.get_static_value"),
    "framework.test_util": "TensorFlowTestCase=tf.test.TestCase is_gpu_available=tf.test.is_gpu_available",
    "framework.versions": "tf.version VERSION=tf.version.VERSION",
    "lib.io.file_io": "_former._file_io",
    "module.module": "Module=tf.Module",
    "ops.array_ops": (
        "tf -where -gather_nd gather_nd=tf.gather_nd where_v2=tf.where gather_v2=tf.gather boolean_mask_v2=tf.boolean_mask "
        "expand_dims_v2=tf.expand_dims squeeze_v2=tf.squeeze size_v2=tf.size shape_v2=tf.shape zeros_like_v2=tf.zeros_like "
        "ones_like_v2=tf.ones_like transpose_v2=tf.transpose stop_gradient=tf.stop_gradient"
    ),
    "ops.check_ops": "tf.debugging",
    "ops.clip_ops": "tf",
    "ops.cond": "cond=tf.cond",
    "ops.control_flow_ops": (
        "cond=tf.cond cond_v2=tf.cond while_loop=tf.while_loop while_loop_v2=tf.while_loop case=tf.case case_v2=tf.case "
        "group=tf.group no_op=tf.no_op tuple=tf.tuple switch_case=tf.switch_case Assert=tf.debugging.Assert"
    ),
    "ops.control_flow_util": "GraphOrParentsInXlaContext=_former._former_names.is_in_xla_context",
    "ops.control_flow_switch_case": "switch_case=tf.switch_case",
    "ops.custom_gradient": "tf",
    "ops.embedding_ops": "embedding_lookup=tf.nn.embedding_lookup embedding_lookup_v2=tf.nn.embedding_lookup",
    "ops.functional_ops": "foldl=tf.foldl foldr=tf.foldr scan=tf.scan map_fn=tf.map_fn",
    "ops.gradients": "gradients=tf.gradients hessians=tf.hessians",
    "ops.gradients_impl": "gradients=tf.gradients gradients_v2=tf.gradients hessians=tf.hessians",
    "ops.image_ops": "tf.image resize_images_v2=tf.image.resize",
    "ops.image_ops_impl": "tf.image resize_images_v2=tf.image.resize",
    "ops.init_ops": "tf",
    "ops.init_ops_v2": (
        "tf tf.initializers Ones=tf.ones_initializer Zeros=tf.zeros_initializer Constant=tf.constant_initializer "
        "RandomNormal=tf.random_normal_initializer RandomUniform=tf.random_uniform_initializer"
    ),
    "ops.linalg_ops": "tf.linalg norm=tf.norm norm_v2=tf.norm einsum=tf.einsum",
    "ops.linalg.linalg": "tf.linalg",
    "ops.logging_ops": "print_v2=tf.print",
    "ops.map_fn": "map_fn=tf.map_fn map_fn_v2=tf.map_fn",
    "ops.math_ops": (
        "tf.math tf matmul=tf.matmul cast=tf.cast range=tf.range tensordot=tf.tensordot sqrt=tf.sqrt "
        "argmax_v2=tf.argmax argmin_v2=tf.argmin reduce_sum_with_dims=tf.reduce_sum -bincount -confusion_matrix -top_k "
        "-where -count_nonzero count_nonzero_v2=tf.math.count_nonzero"
    ),
    "ops.nn": _NN,
    "ops.nn_impl": _NN,
    "ops.nn_ops": _NN,
    "ops.numpy_ops": "tf.experimental.numpy",
    "ops.parallel_for.control_flow_ops": "vectorized_map=tf.vectorized_map",
    "ops.parallel_for": "vectorized_map=tf.vectorized_map",
    "ops.random_ops": _RANDOM,
    "ops.resource_variable_ops": (
        "ResourceVariable=tf.Variable BaseResourceVariable=tf.Variable "
        "is_resource_variable=_former._former_names.is_resource_variable"
    ),
    "ops.script_ops": "py_function=tf.py_function numpy_function=tf.numpy_function",
    "ops.sort_ops": "tf",
    "ops.sparse_ops": "tf.sparse",
    "ops.special_math_ops": "einsum=tf.einsum lbeta=tf.math.lbeta",
    "ops.state_ops": (
        "assign=tf.compat.v1.assign assign_add=tf.compat.v1.assign_add assign_sub=tf.compat.v1.assign_sub"
    ),
    "ops.stateful_random_ops": "tf.random tf.random.experimental",
    "ops.stateless_random_ops": "tf.random tf.random.experimental",
    "ops.summary_ops_v2": "tf.summary",
    "ops.tensor_array_ops": "TensorArray=tf.TensorArray",
    "ops.variable_scope": "variable_creator_scope=tf.variable_creator_scope",
    "ops.variables": "Variable=tf.Variable VariableAggregation=tf.VariableAggregation VariableSynchronization=tf.VariableSynchronization",
    "ops.weights_broadcast_ops": "broadcast_weights=_former._former_names.broadcast_weights",
    "ops.while_loop": "while_loop=tf.while_loop",
    "platform.build_info": "build_info=_former._former_names.build_info",
    "platform.flags": "tf.compat.v1.flags",
    "platform.app": "tf.compat.v1.app",
    "platform.gfile": "tf.compat.v1.gfile tf.io.gfile",
    "platform.sysconfig": "tf.sysconfig",
    "platform.test": "tf.test",
    "platform.tf_logging": "tf.compat.v1.logging",
    "profiler.profiler_v2": "tf.profiler.experimental",
    "profiler.trace": "Trace=tf.profiler.experimental.Trace",
    "summary.summary": "tf.summary",
    "tpu.tpu_strategy_util": "tf.tpu.experimental",
    "trackable.autotrackable": "AutoTrackable=tf.Module",
    "training.checkpoint_management": "tf.train",
    "training.moving_averages": "ExponentialMovingAverage=tf.train.ExponentialMovingAverage",
    "training.server_lib": "ClusterSpec=tf.train.ClusterSpec",
    "training.tracking.tracking": "AutoTrackable=tf.Module",
    "training.tracking.util": "tf.train",
    "checkpoint.checkpoint": "tf.train",
    "checkpoint.checkpoint_management": "tf.train",
    "util.compat": "tf.compat",
    "util.deprecation": "_former._decorators",
    "util.nest": "tf.nest",
    "util.tf_contextlib": "_former._decorators",
    "util.tf_decorator": "_former._decorators",
    "util.tf_export": "_former._decorators",
    "util.tf_inspect": "_former._inspection",
    **{f"keras.{name}".rstrip("."): sources for name, sources in KERAS_MODULES.items()},
}


def _message(wanted: str) -> str:
    return (
        f"`{wanted}` is not there: `tensorflow.python` is TensorFlow's private code, of which tfdist_jax knows what has a public "
        "name. Use the public name under `tf.`."
    )


@functools.cache
def python() -> Any:
    """Return the module `tensorflow.python` for a program, which is told that this is private code."""
    tell_old_form("`tensorflow.python`, TensorFlow's private code", "the public names under `tf.`")
    return view_python()


def view_python() -> Any:
    """Return the module `tensorflow.python`."""
    return View(NAME, "", _MODULES, _message)


def missing_module(name: str) -> ModuleNotFoundError:
    """Return the error for a module of `tensorflow.python` that is not there."""
    return ModuleNotFoundError(f"No module named {name!r}: {_message(name)}", name=name)
