"""Sequences of labels without times: `tf.nn.ctc_loss`, greedy decoding and distances."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, require, static_int
from tfdist_jax.compat.tensorflow._ops._selection import known
from tfdist_jax.compat.tensorflow._platform._errors import FailedPreconditionError
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor, is_sparse, sparse
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def ctc_loss(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Return the connectionist temporal classification loss of each sequence.

    See https://www.tensorflow.org/api_docs/python/tf/nn/ctc_loss.

    Args:
        labels: `[batch, max_label_length]` integers, or a sparse matrix of them.
        logits: `[frames, batch, classes]`, or with the batch first if not `logits_time_major`.
        label_length: `[batch]`; None for sparse labels.
        logit_length: `[batch]`.
        logits_time_major: Which axis of `logits` is the time.
        unique: Unused: it makes TensorFlow faster.
        blank_index: The class that stands for no label; 0 if None, needed for sparse labels. Negative ones count from the
            end.
        name: Unused.

    Returns:
        `[batch]`; a sequence that is too short for its labels gives a loss of about 1e5.
    """
    logits = require(convert_to_tensor(logits), "f", "nn.ctc_loss")
    if logits.ndim != 3:
        raise invalid(f"logits must have three axes, got shape {tuple(logits.shape)}")
    if is_sparse(labels):
        if blank_index is None:
            raise ValueError("Argument `blank_index` must be provided when labels is a SparseTensor.")
        labels, label_length = _dense_labels(labels)
    batched = jnp.swapaxes(logits, 0, 1) if logits_time_major else logits
    numbers, blank = convert_to_tensor(labels), blank_index or 0
    after = lambda length, size: jnp.arange(size) >= convert_to_tensor(length)[:, None]
    return optax.ctc_loss(
        batched,
        after(logit_length, batched.shape[1]).astype(batched.dtype),
        numbers,
        after(label_length, numbers.shape[1]).astype(batched.dtype),
        blank_id=blank % batched.shape[2],
    )


def _dense_labels(labels: SparseTensor) -> tuple[jax.Array, jax.Array]:
    rows, columns = labels.indices.T
    lengths = jnp.zeros(labels.shape[0], jnp.int32).at[rows].add(1)
    return jnp.zeros(tuple(labels.shape), labels.values.dtype).at[rows, columns].set(labels.values), lengths


def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: bool = True, blank_index: int | None = None
) -> tuple[list[SparseTensor], jax.Array]:
    """Return the most likely class of each frame, without blanks and repetitions; works outside of functions.

    See https://www.tensorflow.org/api_docs/python/tf/nn/ctc_greedy_decoder.

    Args:
        inputs: Logits, `[frames, batch, classes]`.
        sequence_length: `[batch]`.
        merge_repeated: Whether a class in a row counts once.
        blank_index: The class that stands for none; the last one if None.

    Returns:
        A list of one sparse matrix of int64 classes, and the negative sum of the largest logits, `[batch, 1]`.
    """
    logits = require(convert_to_tensor(inputs), "f", "nn.ctc_greedy_decoder")
    lengths = known(convert_to_tensor(sequence_length), "tf.nn.ctc_greedy_decoder")
    frames, batch, classes = logits.shape
    if lengths.shape != (batch,) or (lengths > frames).any():
        raise FailedPreconditionError(
            None, None, f"sequence_length must be [batch] numbers up to {frames}, got {lengths.tolist()}"
        )
    blank = (classes - 1 if blank_index is None else static_int(blank_index, "blank_index")) % classes
    best = known(jnp.argmax(logits, -1).T, "tf.nn.ctc_greedy_decoder")
    inside = np.arange(frames) < lengths[:, None]
    kept = inside & (best != blank)
    if merge_repeated:
        kept[:, 1:] &= best[:, 1:] != best[:, :-1]
    rows, _ = np.nonzero(kept)
    places = np.stack([rows, np.concatenate([np.arange(n) for n in kept.sum(1)]).astype(int)], 1)
    decoded = SparseTensor(places, best[kept].astype(np.int64), [batch, int(kept.sum(1).max(initial=0))])
    score = jnp.sum(jnp.where(inside.T, jnp.max(logits, -1), 0), 0)
    return [decoded], -score[:, None]


def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Return the different labels of each row, filled up with zeros, and which of them each label is.

    See https://www.tensorflow.org/api_docs/python/tf/nn/ctc_unique_labels.
    """
    numbers = known(convert_to_tensor(labels), "tf.nn.ctc_unique_labels")
    uniques, places = np.zeros(numbers.shape, np.int64), np.zeros(numbers.shape, np.int32)
    for i, row in enumerate(numbers):
        different, first, inverse = np.unique(row, return_index=True, return_inverse=True)
        order = np.argsort(first)
        uniques[i, : len(order)] = different[order]
        places[i] = np.argsort(order)[inverse]
    return convert_to_tensor(uniques), convert_to_tensor(places)


def collapse_repeated(labels: Any, seq_length: Any, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Return labels `[batch, time]` without repetitions, filled up with zeros, and their new lengths, int32.

    See https://www.tensorflow.org/api_docs/python/tf/nn/collapse_repeated.
    """
    numbers = known(convert_to_tensor(labels), "tf.nn.collapse_repeated")
    lengths = known(convert_to_tensor(seq_length), "tf.nn.collapse_repeated")
    kept = np.arange(numbers.shape[1]) < lengths[:, None]
    kept[:, 1:] &= numbers[:, 1:] != numbers[:, :-1]
    new_lengths = kept.sum(1)
    short = np.zeros((len(numbers), int(new_lengths.max(initial=0))), numbers.dtype)
    short[np.arange(short.shape[1]) < new_lengths[:, None]] = numbers[kept]
    return convert_to_tensor(short), convert_to_tensor(new_lengths.astype(_dtypes.int32.as_numpy_dtype))


def edit_distance(hypothesis: Any, truth: Any, normalize: bool = True, name: str = "edit_distance") -> jax.Array:
    """Return how many insertions, deletions and changes make each hypothesis the truth; works outside of functions.

    See https://www.tensorflow.org/api_docs/python/tf/edit_distance.

    Args:
        hypothesis: A sparse tensor; its last axis is that of the sequences' elements.
        truth: A sparse tensor of the same type.
        normalize: Whether to divide by the length of the truth.
        name: Unused.

    Returns:
        Distances, in the larger shape of the two without the last axis; infinite ones for an empty truth, if they are
        normalized and there is a hypothesis.
    """
    guessed, right = sparse(hypothesis), sparse(truth)
    if guessed.dtype != right.dtype:
        raise invalid(f"The types differ: {guessed.dtype.name} and {right.dtype.name}.")
    sizes = np.maximum(guessed.shape[:-1], right.shape[:-1]).astype(int)
    said, wanted = _sequences(guessed), _sequences(right)
    distances = np.zeros(sizes, np.float32)
    for place in said.keys() | wanted.keys():
        one, other = said.get(place, []), wanted.get(place, [])
        distance = _edits(one, other)
        if normalize and distance:
            distance = distance / len(other) if other else np.inf
        distances[place] = distance
    return convert_to_tensor(distances)


def _sequences(given: SparseTensor) -> dict[tuple[int, ...], list[Any]]:
    places = known(given.indices, "tf.edit_distance").tolist()
    found: dict[tuple[int, ...], list[Any]] = {}
    for (*row, _), value in zip(places, np.asarray(given.values).tolist(), strict=True):
        found.setdefault(tuple(row), []).append(value)
    return found


def _edits(one: list[Any], other: list[Any]) -> int:
    """Return the Levenshtein distance, row by row of its table."""
    last = list(range(len(other) + 1))
    for i, item in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (item != wanted)))
        last = row
    return last[-1]
