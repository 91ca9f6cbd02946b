# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._functions._concrete_function import (
    ConcreteFunction as ConcreteFunction,
)
from tfdist_jax.compat.tensorflow._functions._function import (
    Function as _Callable,
    Function as _GenericFunction,
    Function as _PolymorphicFunction,
)
from tfdist_jax.compat.tensorflow._functions._trace_types import (
    SupportsTracingProtocol as SupportsTracingProtocol,
    TraceType as TraceType,
)
from tfdist_jax.compat.tensorflow._tensors._tensor import (
    Tensor as _TensorLike,
)
Callable = _Callable
GenericFunction = _GenericFunction
PolymorphicFunction = _PolymorphicFunction
TensorLike = _TensorLike
