"""`tf.image`: boxes in images, and which of many that overlap to keep."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_int
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

# Yellow, blue, red, lime, purple, olive, maroon, navy, aqua and fuchsia, as TensorFlow cycles through them.
_COLORS = [
    [1, 1, 0, 1],
    [0, 0, 1, 1],
    [1, 0, 0, 1],
    [0, 1, 0, 1],
    [0.5, 0, 0.5, 1],
    [0.5, 0.5, 0, 1],
    [0.5, 0, 0, 1],
    [0, 0, 0.5, 1],
    [0, 1, 1, 1],
    [1, 0, 1, 1],
]


def _kept(
    overlap: jax.Array, scores: jax.Array, number: int, threshold: Any, least: Any, sigma: float = 0.0
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Choose the best boxes one by one, each time dropping, or with `sigma` weakening, those that overlap it.

    Args:
        overlap: `[n, n]`.
        scores: `[n]`.
        number: How many to choose at most.
        threshold: Boxes that overlap a chosen one by more are dropped.
        least: Only boxes with a higher score are chosen.
        sigma: How far the scores of boxes fall that overlap less; 0 for not at all.

    Returns:
        Their numbers, 0 where there are not as many; their scores; and how many there are.
    """
    decay = -0.5 / sigma if sigma > 0 else 0.0
    weights = jnp.where(overlap <= threshold, jnp.exp(decay * jnp.square(overlap)), 0)

    def choose(i: Any, state: Any) -> Any:
        live, chosen, values, count = state
        best = jnp.argmax(live)
        found = live[best] > least
        chosen = chosen.at[i].set(jnp.where(found, best.astype(jnp.int32), 0))
        values = values.at[i].set(jnp.where(found, live[best], 0))
        rest = jnp.where(weights[best] > 0, live * weights[best], -jnp.inf).at[best].set(-jnp.inf)
        return jnp.where(found, rest, live), chosen, values, count + found

    start = scores, jnp.zeros(number, jnp.int32), jnp.zeros(number, scores.dtype), jnp.zeros((), jnp.int32)
    _, chosen, values, count = jax.lax.fori_loop(0, number if scores.size else 0, choose, start)
    return chosen, values, count


def _overlaps(boxes: jax.Array) -> jax.Array:
    """Return intersection over union of all pairs of boxes `[n, 4]`, whose corners come in any order."""
    low, high = jnp.minimum(boxes[:, :2], boxes[:, 2:]), jnp.maximum(boxes[:, :2], boxes[:, 2:])
    area = jnp.prod(high - low, -1)
    common = jnp.minimum(high[:, None], high) - jnp.maximum(low[:, None], low)
    shared = jnp.prod(jnp.maximum(common, 0), -1)
    union = area[:, None] + area - shared
    return jnp.where((area[:, None] > 0) & (area > 0), shared / jnp.where(union > 0, union, 1), 0)


def _checked(boxes: Any, scores: Any) -> tuple[jax.Array, jax.Array]:
    places, values = convert_to_tensor(boxes), convert_to_tensor(scores)
    if places.ndim != 2 or places.shape[1] != 4 or tuple(values.shape) != places.shape[:1]:
        raise invalid(f"boxes must be [n, 4] and scores [n], got {tuple(places.shape)} and {tuple(values.shape)}")
    return places, values


def _cut(chosen: jax.Array, count: jax.Array, what: str) -> jax.Array:
    if isinstance(count, Tracer):
        raise NotImplementedError(
            f"{what} gives a number of boxes that depends on values, but XLA's sizes are fixed when a function is traced. "
            "Use tf.image.non_max_suppression_padded with pad_to_max_output_size=True."
        )
    return chosen[: int(count)]


def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    name: str | None = None,
) -> jax.Array:
    """Return the numbers of the best boxes of those that overlap much, best first; works outside of functions.

    See https://www.tensorflow.org/api_docs/python/tf/image/non_max_suppression.

    Args:
        boxes: `[n, 4]`, each two opposite corners, y before x.
        scores: `[n]`.
        max_output_size: How many boxes at most.
        iou_threshold: Boxes overlap much if their intersection is a larger part of their union.
        score_threshold: Boxes with scores up to this are left out.
        name: Unused.
    """
    places, values = _checked(boxes, scores)
    number = min(static_int(max_output_size, "max_output_size"), len(values))
    chosen, _, count = _kept(_overlaps(places), values, number, iou_threshold, score_threshold)
    return _cut(chosen, count, "tf.image.non_max_suppression")


def non_max_suppression_with_scores(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    soft_nms_sigma: Any = 0.0,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return `non_max_suppression` and the scores, which fall with the overlap if `soft_nms_sigma` is positive.

    See https://www.tensorflow.org/api_docs/python/tf/image/non_max_suppression_with_scores.
    """
    places, values = _checked(boxes, scores)
    number = min(static_int(max_output_size, "max_output_size"), len(values))
    chosen, found, count = _kept(
        _overlaps(places), values, number, iou_threshold, score_threshold, float(soft_nms_sigma)
    )
    what = "tf.image.non_max_suppression_with_scores"
    return _cut(chosen, count, what), _cut(found, count, what)


def non_max_suppression_overlaps(
    overlaps: Any,
    scores: Any,
    max_output_size: Any,
    overlap_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    name: str | None = None,
) -> jax.Array:
    """Return `non_max_suppression` for overlaps, `[n, n]`, of one's own."""
    given, values = convert_to_tensor(overlaps), convert_to_tensor(scores)
    number = min(static_int(max_output_size, "max_output_size"), len(values))
    chosen, _, count = _kept(given, values, number, overlap_threshold, score_threshold)
    return _cut(chosen, count, "tf.image.non_max_suppression_overlaps")


def non_max_suppression_padded(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    pad_to_max_output_size: bool = False,
    name: str | None = None,
    sorted_input: bool = False,
    canonicalized_coordinates: bool = False,
    tile_size: int = 512,
) -> tuple[jax.Array, jax.Array]:
    """Return `non_max_suppression`, filled up with zeros if `pad_to_max_output_size`, and how many boxes there are.

    See https://www.tensorflow.org/api_docs/python/tf/image/non_max_suppression_padded. `boxes` and `scores` may have a
    batch before; then the numbers are filled up. Works in functions if they are.
    """
    places, values = convert_to_tensor(boxes), convert_to_tensor(scores)
    number = static_int(max_output_size, "max_output_size")
    choose = lambda box, score: _kept(_overlaps(box), score, number, iou_threshold, score_threshold)
    if places.ndim > 2:
        for _ in range(places.ndim - 2):
            choose = jax.vmap(choose)
        chosen, _, count = choose(places, values)
        return chosen, count
    chosen, _, count = choose(*_checked(places, values))
    return chosen if pad_to_max_output_size else _cut(chosen, count, "tf.image.non_max_suppression_padded"), count


def combined_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size_per_class: Any,
    max_total_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the best boxes of each class, best first, for a batch of images; works in functions.

    See https://www.tensorflow.org/api_docs/python/tf/image/combined_non_max_suppression.

    Args:
        boxes: `[batch, n, classes or 1, 4]`.
        scores: `[batch, n, classes]`.
        max_output_size_per_class: How many boxes of a class at most.
        max_total_size: How many boxes of an image at most.
        iou_threshold: As for `non_max_suppression`.
        score_threshold: As for `non_max_suppression`.
        pad_per_class: Whether the result has `max_output_size_per_class * classes` boxes, if that is less than
            `max_total_size`, rather than that many.
        clip_boxes: Whether corners are brought into [0, 1].
        name: Unused.

    Returns:
        Boxes `[batch, size, 4]`, scores and classes `[batch, size]`, filled up with zeros; and numbers `[batch]`.
    """
    places, values = convert_to_tensor(boxes), convert_to_tensor(scores)
    if places.ndim != 4 or values.ndim != 3 or places.shape[2] not in (1, values.shape[2]):
        raise invalid(f"Boxes of shape {tuple(places.shape)} do not fit scores of shape {tuple(values.shape)}.")
    classes, each = values.shape[2], static_int(max_output_size_per_class, "max_output_size_per_class")
    total = static_int(max_total_size, "max_total_size")
    size = min(total, each * classes) if pad_per_class else total
    places = jnp.broadcast_to(places, (*values.shape, 4))
    each = min(each, values.shape[1])

    def of_class(box: jax.Array, score: jax.Array) -> Any:
        chosen, found, count = _kept(_overlaps(box), score, each, iou_threshold, score_threshold)
        there = jnp.arange(each) < count
        return box[chosen], jnp.where(there, found, -jnp.inf)

    def of_image(box: jax.Array, score: jax.Array) -> Any:
        found, values = jax.vmap(of_class, (1, 1))(box, score)
        flat = values.reshape(-1)
        missing = max(0, size - flat.size)
        order = jnp.argsort(-flat, stable=True)[:size]
        there = jnp.pad(flat[order] > -jnp.inf, (0, missing))
        fill = lambda part: jnp.where(there.reshape((-1,) + (1,) * (part.ndim - 1)), part, 0)
        padded = lambda part: fill(jnp.pad(part[order], [(0, missing), *[(0, 0)] * (part.ndim - 1)]))
        corners = found.reshape(-1, 4)
        corners = jnp.clip(corners, 0, 1) if clip_boxes else corners
        kinds = jnp.repeat(jnp.arange(classes, dtype=score.dtype), each)
        return padded(corners), padded(flat), padded(kinds), jnp.sum(there, dtype=jnp.int32)

    return jax.vmap(of_image)(places, values)


def draw_bounding_boxes(images: Any, boxes: Any, colors: Any, name: str | None = None) -> jax.Array:
    """Return images with the outlines of boxes drawn, one pixel wide.

    See https://www.tensorflow.org/api_docs/python/tf/image/draw_bounding_boxes.

    Args:
        images: `[batch, height, width, channels]` floats.
        boxes: `[batch, n, 4]`: top, left, bottom and right in [0, 1].
        colors: `[m, channels]`, taken in turn; colours of TensorFlow's own if None.
        name: Unused.
    """
    pictures, places = convert_to_tensor(images), convert_to_tensor(boxes)
    _, height, width, channels = pictures.shape
    table = np.ones((1, 1)) if colors is None and channels == 1 else np.asarray(_COLORS)[:, :channels]
    paints = jnp.asarray(table if colors is None else convert_to_tensor(colors), pictures.dtype)
    rows, columns = jnp.arange(height)[:, None], jnp.arange(width)
    for i in range(places.shape[1]):
        scaled = (places[:, i] * jnp.asarray([height - 1, width - 1] * 2, places.dtype)).astype(jnp.int32)
        top, left, bottom, right = (scaled[:, k, None, None] for k in range(4))
        inside = (rows >= top) & (rows <= bottom) & (columns >= left) & (columns <= right)
        edge = (rows == top) | (rows == bottom) | (columns == left) | (columns == right)
        drawn = (inside & edge)[..., None]
        pictures = jnp.where(drawn, paints[i % len(paints), :channels], pictures)
    return pictures
