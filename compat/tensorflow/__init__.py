"""`import tfdist_jax.compat.tensorflow as tf`: the TensorFlow API on JAX."""

from tfdist_jax import _interpreter
from tfdist_jax.compat import _import_hooks, _importers
from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames
from tfdist_jax.compat.tensorflow._ops import _operators
from tfdist_jax.compat.tensorflow._tensors import _host_part, _tensor

_importers.install()
_import_hooks.install()
_tensor.install()
_host_part.install()
_operators.install()
_interpreter.install()

newaxis = None

__getattr__ = LazyNames(
    __name__,
    {
        "_variables._variable": "Variable VariableAggregation VariableSynchronization",
        "_tensors._indexed_slices": "IndexedSlices",
        "_tensors._sparse_tensor": "SparseTensor SparseTensorSpec is_tensor type_spec_from_value",
        "_tensors._type_spec": "TypeSpec",
        "ragged._ragged_tensor": "RaggedTensor RaggedTensorSpec",
        "_variables._module": "Module",
        "_variables._variable_creators": "variable_creator_scope",
        "_functions._function": "function init_scope",
        "_gradients._graph_gradients": "AggregationMethod gradients hessians",
        "_gradients._gradient_tape": "GradientTape UnconnectedGradients",
        "_gradients._registered_gradients": "RegisterGradient no_gradient",
        "_gradients._custom_gradient": "custom_gradient grad_pass_through recompute_grad stop_gradient",
        "_tensors._conversions": "register_tensor_conversion_function",
        "_tensors._tensor": "Tensor constant convert_to_tensor get_static_value is_symbolic_tensor",
        "_tensors._shape": "TensorShape TensorSpec",
        "_ops._tensor_array": "TensorArray",
        "_platform._version": "__compiler_version__=COMPILER_VERSION __git_version__=GIT_VERSION __version__=VERSION",
        "_platform._devices": "device",
        "_tensors._dtypes": (
            "DType as_dtype bfloat16 bool=bool_ complex128 complex64 double float16 float32 float64 half int16 "
            "int32 int64 int8 string uint16 uint32 uint64 uint8"
        ),
        "_ops._cast": "bitcast cast complex saturate_cast",
        "_ops._elementwise": (
            "abs acos acosh asin asinh atan atanh cos cosh exp floor identity identity_n logical_not negative "
            "round sigmoid sign sin sinh sqrt square tan tanh"
        ),
        "_ops._binary": (
            "add add_n atan2 divide equal greater greater_equal less less_equal logical_and logical_or maximum "
            "minimum multiply not_equal pow realdiv scalar_mul subtract truediv truncatediv truncatemod"
        ),
        "_ops._reductions": (
            "argmax argmin cumsum histogram_fixed_width histogram_fixed_width_bins reduce_all reduce_any "
            "reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum"
        ),
        "_ops._creation": "eye fill linspace meshgrid one_hot ones ones_like range sequence_mask zeros zeros_like",
        "_ops._shapes": (
            "broadcast_dynamic_shape broadcast_static_shape broadcast_to ensure_shape expand_dims pad rank repeat "
            "reshape reverse reverse_sequence roll shape shape_n size squeeze tile transpose unravel_index"
        ),
        "nn._space_to_batch": (
            "batch_to_space extract_volume_patches required_space_to_batch_paddings space_to_batch space_to_batch_nd"
        ),
        "random._initializers": (
            "constant_initializer ones_initializer random_normal_initializer random_uniform_initializer "
            "zeros_initializer"
        ),
        "_ops._concat": "concat parallel_stack slice split stack strided_slice unstack",
        "_ops._selection": (
            "boolean_mask dynamic_partition dynamic_stitch gather gather_nd scatter_nd tensor_scatter_nd_add "
            "tensor_scatter_nd_max tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update unique "
            "unique_with_counts where"
        ),
        "_ops._sorting": "argsort searchsorted sort",
        "_ops._clip": "clip_by_global_norm clip_by_norm clip_by_value",
        "linalg._matrices": "eig eigvals einsum matmul matrix_square_root=sqrtm norm tensordot",
        "_ops._control": "case cond foldl foldr map_fn scan switch_case vectorized_map while_loop",
        "_ops._graph_compat": (
            "CriticalSection control_dependencies executing_eagerly get_current_name_scope group guarantee_const "
            "inside_function name_scope no_op numpy_function py_function timestamp tuple"
        ),
        "_ops._printing": "print",
        "_ops._assertions": "Assert assert_equal assert_greater assert_less assert_rank",
        "keras": "initializers losses metrics optimizers",
        "_platform._logging": "get_logger",
        "_platform._device_spec": "DeviceSpec",
        "_platform._op_libraries": "load_library load_op_library",
        "nn._ctc": "edit_distance",
        "strings._hashing": "fingerprint",
        "strings._numbers": "as_string",
    },
    modules=(
        "audio autodiff autograph bitwise compat config data debugging distribute dtypes errors experimental feature_column image "
        "io keras linalg lookup math nest nn profiler ragged random raw_ops saved_model signal sparse strings summary "
        "sysconfig test tpu train types version xla"
    ),
)
__dir__ = __getattr__.names
