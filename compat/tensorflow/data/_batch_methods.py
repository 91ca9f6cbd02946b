"""Methods of `tf.data.Dataset` that join elements to batches and windows, and take them apart."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, int64
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data import _batching, _elements, _padding
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._host_values import needing_values
from tfdist_jax.compat.tensorflow.data._planned import Planned, positive


@needing_values
class Groups(Planned):
    """Batches, windows, groups and buckets."""

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Join `batch_size` elements at a time."""
        size = positive("batch_size", batch_size)
        return self._with(_batching.Batch(self._plan, size, drop_remainder=bool(drop_remainder)))

    def unbatch(self, name: str | None = None) -> Self:
        """Take batches apart."""
        return self._with(_batching.Unbatch(self._plan))

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Make datasets of `size` elements, `stride` apart, each starting `shift` (`size` by default) farther on."""
        steps = (
            positive("size", size),
            positive("shift", size if shift is None else shift),
            positive("stride", stride),
        )
        return self._with(_batching.Window(self._plan, *steps, drop_remainder=drop_remainder, dataset_of=self._with))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Join `batch_size` elements at a time, filled up to the same shape.

        Args:
            batch_size: Elements in a batch.
            padded_shapes: Shape for each tensor of an element; sizes that are None or -1 are the batch's longest.
            padding_values: Value for each tensor, or for all; zero or the empty string by default.
            drop_remainder: Whether a smaller last batch is left out.
            name: Unused.

        Raises:
            TypeError: If elements hold anything but tensors.
            ValueError: If a shape is missing for a tensor of unknown rank.
            tf.errors.DataLossError: When an element is larger than its shape.
        """
        for spec in _elements.leaves(self.element_spec):
            if not isinstance(spec, TensorSpec):
                raise TypeError(
                    "`padded_batch` is only supported for datasets that produce tensor elements but type spec of elements in the "
                    f"input dataset is not a subclass of TensorSpec: `{spec}`. Map it with `to_tensor()`, or use `batch`."
                )
        size = positive("batch_size", batch_size)
        shapes = _padding.shapes(self.element_spec, padded_shapes)
        values = _padding.values(self.element_spec, padding_values)
        # The elements' own sizes are no limit: those that a function in Python gives are only known from examples.
        limits = shapes if padded_shapes is not None else _elements.map_structure(_padding.open_shape, shapes)
        padding = {"padded_shapes": shapes, "padding_values": values, "limits": limits}
        return self._with(_padding.PaddedBatch(self._plan, size, **padding, drop_remainder=bool(drop_remainder)))

    def ragged_batch(
        self, batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = int64, name: str | None = None
    ) -> Self:
        """Join `batch_size` elements at a time to ragged tensors, where shapes are not known; on the host, as their rows differ.

        Args:
            batch_size: Elements in a batch.
            drop_remainder: Whether a smaller last batch is left out.
            row_splits_dtype: int32 or int64.
            name: Unused.
        """
        # Ragged tensors take a fiftieth of the facade's time to start: few programs have them.
        from tfdist_jax.compat.tensorflow.data._ragged_batches import RaggedBatch

        size = positive("batch_size", batch_size)
        return self._with(RaggedBatch(self._plan, size, bool(drop_remainder), as_dtype(row_splits_dtype)))

    def sparse_batch(self, batch_size: int, row_shape: Any, name: str | None = None) -> Self:
        """Join `batch_size` tensors at a time to a sparse tensor.

        Args:
            batch_size: Elements in a batch.
            row_shape: The shape that each may fill; sizes that are None or -1 are the batch's largest.
            name: Unused.

        Raises:
            TypeError: If elements are no tensors.
            tf.errors.DataLossError: In an iteration, when an element is larger.
            tf.errors.InvalidArgumentError: In an iteration, when it is of another rank.
        """
        from tfdist_jax.compat.tensorflow.data._ragged_batches import SparseBatch

        if not isinstance(self.element_spec, TensorSpec) and getattr(self.element_spec, "ragged_rank", 1):
            raise TypeError(f"`sparse_batch` takes datasets of single tensors, got {self.element_spec}.")
        shape = [None if wanted in (None, -1) else int(wanted) for wanted in TensorShape(row_shape).as_list()]
        return self._with(SparseBatch(self._plan, positive("batch_size", batch_size), shape))

    def rebatch(self, batch_size: Any, drop_remainder: bool = False, name: str | None = None) -> Self:
        """Join the rows of batches to batches of another size, or of several sizes in turn."""
        sizes = [int(size) for size in np.ravel(batch_size)]
        if min(sizes, default=-1) < 0 or not any(sizes):
            raise invalid(f"`batch_size` must be 1 or more, or such numbers and zeros in turn, got {batch_size!r}.")
        return self._with(_batching.Rebatch(self._plan, sizes, drop_remainder=bool(drop_remainder)))

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Self], Self],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """Join `reduce_func(key, elements)` of every `window_size` elements with the same key, and of what is left."""
        if (window_size is None) == (window_size_func is None):
            raise ValueError("Must pass either `window_size` or `window_size_func`, but not both.")

        size = window_size if window_size_func is None else window_size_func
        function = ElementFunction(key_func)
        return self._with(_batching.GroupByWindow(self._plan, function, reduce_func, size, self._with))

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Join elements of similar length to padded batches; each range of lengths has its batch size."""
        if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
            raise ValueError(
                f"`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1` but `len(bucket_batch_sizes)="
                f"{len(bucket_batch_sizes)}` and `len(bucket_boundaries)={len(bucket_boundaries)}`."
            )

        padding = None if no_padding else (padded_shapes, padding_values, pad_to_bucket_boundary)
        buckets = _Buckets(element_length_func, tuple(bucket_boundaries), bucket_batch_sizes, drop_remainder, padding)
        return self.group_by_window(buckets.number, buckets.batches, window_size_func=buckets.batch_size)


@final
@dataclasses.dataclass(frozen=True)
class _Buckets:
    """Elements of similar length; the shapes and values that fill them up, and whether to the longest of a bucket."""

    length_func: Callable[..., Any]
    boundaries: Sequence[int]
    batch_sizes: Sequence[int]
    drop_remainder: bool
    padding: tuple[Any, Any, bool] | None

    def number(self, *element: Any) -> Any:
        """Return the number of an element's bucket."""
        return np.searchsorted(np.asarray(self.boundaries), int(self.length_func(*element)), side="right")

    def batch_size(self, number: Any) -> int:
        """Return how many elements of a bucket are a batch."""
        return self.batch_sizes[int(number)]

    def batches(self, number: Any, bucket: Any) -> Any:
        """Return the batches of a bucket."""
        size = self.batch_size(number)
        if self.padding is None:
            return bucket.batch(size, self.drop_remainder)
        shapes, values, to_boundary = self.padding
        if to_boundary:
            shapes = _padding.to_boundary(bucket.element_spec, shapes, self.boundaries, int(number))
        return bucket.padded_batch(size, shapes, values, self.drop_remainder)
