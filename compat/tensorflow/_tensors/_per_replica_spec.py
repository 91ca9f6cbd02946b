"""The type of values that differ between replicas, such as the batches of a distributed dataset."""

import dataclasses
from typing import Any, final

from tfdist_jax import PerReplica
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec


@final
@dataclasses.dataclass(frozen=True, repr=False)
class PerReplicaSpec:
    """A `tf.TensorSpec` for each replica's value; part of a distributed dataset's `element_spec`.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/DistributedDataset#element_spec
    """

    value_specs: tuple[TensorSpec, ...]

    @classmethod
    def of_batch(cls, spec: TensorSpec, num_replicas: int) -> "PerReplicaSpec":
        """Return the type of the parts of a batch: of known size if the batches' size is known and divides evenly."""
        rows, *rest = spec.shape.as_list()
        part = None if rows is None or rows % num_replicas else rows // num_replicas
        return cls((TensorSpec(TensorShape([part, *rest]), spec.dtype),) * num_replicas)

    def is_compatible_with(self, value: Any) -> bool:
        """Whether a value is one for each replica, each of its type."""
        if not isinstance(value, PerReplica) or value.num_replicas != len(self.value_specs):
            return False
        parts = value.values if value.is_uneven else [value.replica_types()] * value.num_replicas
        return all(spec.is_compatible_with(part) for spec, part in zip(self.value_specs, parts, strict=True))

    def joined(self) -> PerReplica:
        """Return the spec of a value whose replicas' rows are held as one array."""
        rows, *rest = self.value_specs[0].shape.as_list()
        count = len(self.value_specs)
        whole = TensorSpec(TensorShape([None if rows is None else rows * count, *rest]), self.value_specs[0].dtype)
        return PerReplica(whole, count, is_rows=True)

    def __repr__(self) -> str:
        return f"PerReplicaSpec({', '.join(map(repr, self.value_specs))})"
