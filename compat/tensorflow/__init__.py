"""`import tfdist_jax.compat.tensorflow as tf`: the TensorFlow API on JAX."""

from tfdist_jax.compat.tensorflow import _startup as _startup, _tensor
from tfdist_jax.compat.tensorflow._names import LazyNames

_tensor.install()

__getattr__ = LazyNames(
    __name__,
    {
        "_variable": "Variable VariableAggregation VariableSynchronization",
        "_function": "function init_scope",
        "_gradient_tape": "GradientTape UnconnectedGradients",
        "_custom_gradient": "custom_gradient stop_gradient",
        "_tensor": "Tensor constant convert_to_tensor",
        "_shape": "TensorShape TensorSpec",
        "_dtypes": "DType as_dtype float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
        " bool=bool_ string complex64 complex128",
    },
    modules="config data distribute dtypes errors keras",
)
__dir__ = __getattr__.names
