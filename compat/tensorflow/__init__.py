"""`import tfdist_jax.compat.tensorflow as tf`: the TensorFlow API on JAX."""

from tfdist_jax.compat.tensorflow import _startup as _startup, _tensor
from tfdist_jax.compat.tensorflow._names import LazyNames

_tensor.install()

newaxis = None

__getattr__ = LazyNames(
    __name__,
    {
        "_variable": "Variable VariableAggregation VariableSynchronization",
        "_function": "function init_scope",
        "_gradient_tape": "GradientTape UnconnectedGradients",
        "_custom_gradient": "custom_gradient stop_gradient",
        "_tensor": "Tensor constant convert_to_tensor get_static_value is_symbolic_tensor is_tensor",
        "_shape": "TensorShape TensorSpec",
        "_version": "__compiler_version__=COMPILER_VERSION __git_version__=GIT_VERSION __version__=VERSION",
        "_devices": "device",
        "_dtypes": (
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
            "argmax argmin cumsum reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min "
            "reduce_prod reduce_sum"
        ),
        "_ops._creation": "eye fill linspace meshgrid one_hot ones ones_like range sequence_mask zeros zeros_like",
        "_ops._shapes": (
            "broadcast_dynamic_shape broadcast_static_shape broadcast_to ensure_shape expand_dims pad rank repeat "
            "reshape reverse roll shape shape_n size squeeze tile transpose"
        ),
        "_ops._joining": "concat parallel_stack slice split stack strided_slice unstack",
        "_ops._selection": (
            "boolean_mask dynamic_partition dynamic_stitch gather gather_nd scatter_nd tensor_scatter_nd_add "
            "tensor_scatter_nd_max tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update unique "
            "unique_with_counts where"
        ),
        "_ops._sorting": "argsort searchsorted sort",
        "_ops._clip": "clip_by_global_norm clip_by_norm clip_by_value",
        "_ops._linalg": "eig eigvals einsum matmul norm tensordot",
        "_ops._control": "case cond foldl foldr map_fn scan switch_case vectorized_map while_loop",
        "_ops._grouping": (
            "control_dependencies executing_eagerly get_current_name_scope group inside_function name_scope no_op "
            "numpy_function py_function tuple"
        ),
        "_ops._printing": "print",
        "_ops._assertions": "Assert assert_equal assert_greater assert_less assert_rank",
        "keras": "initializers losses metrics optimizers",
    },
    modules="autodiff bitwise config data debugging distribute dtypes errors io keras linalg math nest nn random sysconfig test version",
)
__dir__ = __getattr__.names
