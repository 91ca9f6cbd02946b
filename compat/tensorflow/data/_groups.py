"""Methods of `tf.data.Dataset` that join elements to batches and windows, and take them apart."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data import _elements, _grouping, _padding, _plan
from tfdist_jax.compat.tensorflow.data._planned import Planned, positive


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
        return self._with(_grouping.batched(self._plan, size, drop_remainder=bool(drop_remainder)))

    def unbatch(self, name: str | None = None) -> Self:
        """Take batches apart."""
        return self._with(_grouping.unbatched(self._plan))

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
        found = lambda draws: _grouping.windows(self._plan.elements(draws), *steps, drop_remainder=drop_remainder)
        part = lambda elements, spec: self._with(_grouping.collected(elements, lambda: spec))
        make = lambda elements, spec: _elements.map_columns(part, elements, spec)
        plan = _plan.Stream(
            lambda draws: (make(elements, self.element_spec) for elements in found(draws)),
            lambda: _elements.map_structure(_elements.DatasetSpec, self.element_spec),
            _grouping.window_count(self._plan.count, *steps, drop_remainder=drop_remainder),
        )
        return self._with(plan)

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
            padding_values: Value for each tensor, or for all; zero or the empty text by default.
            drop_remainder: Whether a smaller last batch is left out.
            name: Unused.

        Raises:
            ValueError: If a shape is missing for a tensor of unknown rank.
            tf.errors.DataLossError: When an element is larger than its shape.
        """
        size = positive("batch_size", batch_size)
        shapes = _padding.shapes(self.element_spec, padded_shapes)
        values = _padding.values(self.element_spec, padding_values)
        # The elements' own sizes are no limit: those that a function in Python gives are only known from examples.
        limits = shapes if padded_shapes is not None else _elements.map_structure(_padding.open_shape, shapes)
        join = lambda group: _elements.map_structure(_padding.join, limits, values, *group)
        spec = lambda: _padding.filled_spec(self.element_spec, shapes)
        return self._with(_grouping.grouped_by_count(self._plan, size, join, spec, drop_remainder=bool(drop_remainder)))

    def rebatch(self, batch_size: Any, drop_remainder: bool = False, name: str | None = None) -> Self:
        """Join the rows of batches to batches of another size, or of several sizes in turn."""
        sizes = [positive("batch_size", size) for size in np.ravel(batch_size)]
        return self._with(_grouping.rebatched(self._plan, sizes, drop_remainder=bool(drop_remainder)))

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

        def size(key: Any) -> Any:
            return window_size if window_size_func is None else window_size_func(convert_to_tensor(key))

        made = lambda key, plan: reduce_func(convert_to_tensor(key), self._with(plan))._plan
        return self._with(_grouping.grouped(self._plan, key_func, made, size))

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

        def batches(key: Any, bucket: Self) -> Self:
            size = bucket_batch_sizes[int(key)]
            if no_padding:
                return bucket.batch(size, drop_remainder)
            shapes = padded_shapes
            if pad_to_bucket_boundary:
                shapes = _padding.to_boundary(self.element_spec, padded_shapes, bucket_boundaries, int(key))
            return bucket.padded_batch(size, shapes, padding_values, drop_remainder)

        lengths = np.asarray(bucket_boundaries)
        bucket_of = lambda *element: np.searchsorted(lengths, int(element_length_func(*element)), side="right")
        return self.group_by_window(bucket_of, batches, window_size_func=lambda key: bucket_batch_sizes[int(key)])
