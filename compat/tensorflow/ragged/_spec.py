"""`tf.RaggedTensorSpec`: what is known of ragged tensors."""

import dataclasses
from typing import Any, final

from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype, float32, int64
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._type_spec import TypeSpec
from tfdist_jax.compat.tensorflow.ragged._base import Ragged


@final
@dataclasses.dataclass(frozen=True, repr=False)
class RaggedTensorSpec:
    """Describes ragged tensors: their shape, the type of the values, how often they are split, and the type of the splits.

    Ref: https://www.tensorflow.org/api_docs/python/tf/RaggedTensorSpec. Difference: `flat_values_spec` is always None.
    """

    shape: Any = None
    dtype: DType = float32
    ragged_rank: Any = None
    row_splits_dtype: DType = int64
    flat_values_spec: Any = None

    def __post_init__(self) -> None:
        """Accept whatever names a shape and types."""
        shape, splits = TensorShape(self.shape), as_dtype(self.row_splits_dtype)
        if self.flat_values_spec is not None:
            raise NotImplementedError(
                "RaggedTensorSpec takes no `flat_values_spec`: flat values are tensors. Leave it out."
            )
        rank = self.ragged_rank
        if rank is None:
            if shape.rank is None:
                raise ValueError("Must specify ragged_rank or a shape with a known rank.")
            rank = shape.rank - 1
        elif not isinstance(rank, int):
            raise TypeError(f"Argument `ragged_rank` must be an int. Received {rank}.")
        if shape.rank is not None and rank >= shape.rank:
            raise ValueError(f"Argument `ragged_rank` ({rank}) must be less than rank ({shape.rank}).")
        if splits.name not in ("int32", "int64"):
            raise ValueError(f"Argument `row_splits_dtype` must be int32 or int64, got {splits.name}.")
        values = {"shape": shape, "dtype": as_dtype(self.dtype), "ragged_rank": rank, "row_splits_dtype": splits}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def value_type(self) -> type:
        """The class of what it describes: ragged tensors, or tensors if they are never split."""
        return Ragged if self.ragged_rank else TensorSpec

    @classmethod
    def from_value(cls, value: Ragged) -> "RaggedTensorSpec":
        """Return the spec of a ragged tensor."""
        return cls(value.shape, value.dtype, value.ragged_rank, as_dtype(value.outer.dtype))

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a ragged tensor, or any of another spec, fits this one."""
        if isinstance(spec_or_value, Ragged):
            spec_or_value = RaggedTensorSpec.from_value(spec_or_value)
        if not isinstance(spec_or_value, RaggedTensorSpec):
            return False
        mine, its = ((s.dtype, s.ragged_rank, s.row_splits_dtype) for s in (self, spec_or_value))
        return mine == its and self.shape.is_compatible_with(spec_or_value.shape)

    def __repr__(self) -> str:
        """Write it as TensorFlow does."""
        return f"RaggedTensorSpec({self.shape!r}, {self.dtype!r}, {self.ragged_rank}, {self.row_splits_dtype!r})"


TypeSpec.register(RaggedTensorSpec)
