"""`tf.TypeSpec`: what the specs of tensors have in common."""

import abc
from typing import Any

from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensorSpec


class TypeSpec(abc.ABC):
    """The class of all specs, for `isinstance`: `tf.TensorSpec`, `tf.SparseTensorSpec`, `tf.RaggedTensorSpec`.

    Ref: https://www.tensorflow.org/api_docs/python/tf/TypeSpec. Difference: programs cannot add kinds of their own.
    """

    @abc.abstractmethod
    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a value, or any of another spec, fits this one."""


for _kind in (TensorSpec, SparseTensorSpec):
    TypeSpec.register(_kind)
