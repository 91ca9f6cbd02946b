"""Losses over few of many classes, and the candidates for that."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_int
from tfdist_jax.compat.tensorflow._ops._selection import known
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.nn._activations import embedding_lookup
from tfdist_jax.compat.tensorflow.nn._losses import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits
from tfdist_jax.compat.tensorflow.random._random_state import next_key


class Candidates(NamedTuple):
    """Sampled classes, and how often the true and the sampled ones are expected among the samples."""

    sampled_candidates: jax.Array
    true_expected_count: jax.Array
    sampled_expected_count: jax.Array


def _sample(
    true_classes: Any, num_true: Any, num_sampled: Any, seed: int | None, chances: np.ndarray, *, unique: bool
) -> Candidates:
    true, number = convert_to_tensor(true_classes), static_int(num_sampled, "num_sampled")
    if true.ndim != 2 or true.shape[1] != static_int(num_true, "num_true"):
        raise invalid(f"true_classes must be a matrix with {num_true} columns, got shape {tuple(true.shape)}")
    if unique and number > len(chances):
        raise invalid(f"Sampler's range is too small: {number} different classes of {len(chances)}.")
    key, logits = next_key(seed), jnp.log(jnp.asarray(chances, jnp.float32))
    if unique:
        # The largest of logits with Gumbel noise are a sample without repetitions.
        _, drawn = jax.lax.top_k(logits + jax.random.gumbel(key, logits.shape), number)
    else:
        drawn = jax.random.categorical(key, logits, shape=(number,))
    counts = jnp.asarray(_expected(chances, number, unique=unique), jnp.float32)
    return Candidates(drawn.astype(jnp.int64), counts[true], counts[drawn])


def _expected(chances: np.ndarray, number: int, *, unique: bool) -> np.ndarray:
    """Return how often each class is expected in a sample."""
    if not unique:
        return chances * number
    # TensorFlow counts the draws that it takes to find so many different classes; this is about how many to expect.
    low, high = 0.0, 1.0
    different = lambda draws: -np.expm1(draws * np.log1p(-np.minimum(chances, 1 - 1e-12)))
    reachable = min(number, len(chances) - 0.5)
    while different(high).sum() < reachable:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if different(middle).sum() < reachable else (low, middle)
    return different(high)


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: Any,
    num_sampled: Any,
    unique: bool,
    range_max: Any,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Return classes drawn with chances that fall like 1 / (class + 1): for classes in the order of their frequency.

    See https://www.tensorflow.org/api_docs/python/tf/random/log_uniform_candidate_sampler. The draws are JAX's.
    """
    classes = np.arange(static_int(range_max, "range_max"))
    chances = np.log((classes + 2) / (classes + 1)) / np.log(len(classes) + 1)
    return _sample(true_classes, num_true, num_sampled, seed, chances, unique=unique)


def uniform_candidate_sampler(
    true_classes: Any,
    num_true: Any,
    num_sampled: Any,
    unique: bool,
    range_max: Any,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Return classes drawn with equal chances.

    See https://www.tensorflow.org/api_docs/python/tf/random/uniform_candidate_sampler. The draws are JAX's.
    """
    number = static_int(range_max, "range_max")
    return _sample(true_classes, num_true, num_sampled, seed, np.full(number, 1 / number), unique=unique)


def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: Any,
    num_sampled: Any,
    unique: bool,
    range_max: Any,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Return classes drawn with chances in proportion to given numbers.

    See https://www.tensorflow.org/api_docs/python/tf/random/fixed_unigram_candidate_sampler. The draws are JAX's.

    Args:
        true_classes: `[batch, num_true]`.
        num_true: How many classes of each example are right.
        num_sampled: How many to draw.
        unique: Whether all are different.
        range_max: How many classes there are.
        vocab_file: A file with a class in each line, whose last word after a comma is its number; or `unigrams`.
        distortion: The power that the numbers are raised to.
        num_reserved_ids: How many first classes are never drawn; the numbers are those of the classes after them.
        num_shards: 1.
        shard: 0.
        unigrams: The numbers.
        seed: A seed.
        name: Unused.
    """
    if num_shards != 1 or shard:
        raise NotImplementedError("Candidates are drawn from all classes: use num_shards=1, shard=0.")
    if bool(vocab_file) == bool(len(unigrams)):
        raise invalid("Must provide either vocab_file or unigrams.")
    if vocab_file:
        with open(vocab_file) as lines:
            unigrams = [float(line.rsplit(",", 1)[1]) for line in lines if line.strip()]
    weights = np.concatenate([np.zeros(num_reserved_ids), np.asarray(unigrams, float) ** distortion])
    if len(weights) != static_int(range_max, "range_max"):
        raise invalid(f"range_max is {range_max}, but there are numbers for {len(weights)} classes.")
    return _sample(true_classes, num_true, num_sampled, seed, weights / weights.sum(), unique=unique)


def all_candidate_sampler(
    true_classes: Any, num_true: Any, num_sampled: Any, unique: bool, seed: int | None = None, name: str | None = None
) -> Candidates:
    """Return all classes, as if they had been drawn."""
    number = static_int(num_sampled, "num_sampled")
    true = convert_to_tensor(true_classes)
    ones = jnp.ones(number, jnp.float32)
    return Candidates(jnp.arange(number, dtype=jnp.int64), jnp.ones(true.shape, jnp.float32), ones)


def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, num_true: Any, seed: int | None = None, name: str | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return where samples are right by chance: example, place among the samples, and a very low number for its logit.

    See https://www.tensorflow.org/api_docs/python/tf/nn/compute_accidental_hits. Works outside of functions.
    """
    true = known(convert_to_tensor(true_classes), "tf.nn.compute_accidental_hits")
    sampled = known(convert_to_tensor(sampled_candidates), "tf.nn.compute_accidental_hits")
    rows, _, places = np.nonzero(true[:, :, None] == sampled)
    weights = np.full(len(rows), np.finfo(np.float32).min, np.float32)
    return tuple(map(convert_to_tensor, (rows.astype(np.int32), places.astype(np.int64), weights)))  # pyright: ignore


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Any,
    num_classes: Any,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    name: str | None = "nce_loss",
) -> jax.Array:
    """Return noise-contrastive estimation losses, `[batch]`.

    See https://www.tensorflow.org/api_docs/python/tf/nn/nce_loss.

    Args:
        weights: `[num_classes, dim]`.
        biases: `[num_classes]`.
        labels: `[batch, num_true]` right classes.
        inputs: `[batch, dim]`.
        num_sampled: How many wrong classes to draw for the batch.
        num_classes: How many classes there are.
        num_true: How many classes of each example are right.
        sampled_values: What a candidate sampler returned; that of `log_uniform_candidate_sampler` if None.
        remove_accidental_hits: Whether samples that are right count for nothing.
        name: Unused.
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        None,
        remove_accidental_hits,
    )
    return jnp.sum(sigmoid_cross_entropy_with_logits(targets, logits), -1)


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Any,
    num_classes: Any,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    seed: int | None = None,
    name: str | None = "sampled_softmax_loss",
) -> jax.Array:
    """Return softmax losses over the right and some drawn classes, `[batch]`; arguments as for `nce_loss`.

    See https://www.tensorflow.org/api_docs/python/tf/nn/sampled_softmax_loss.
    """
    logits, targets = _sampled_logits(
        weights,
        biases,
        labels,
        inputs,
        num_sampled,
        num_classes,
        num_true,
        sampled_values,
        seed,
        remove_accidental_hits,
    )
    return softmax_cross_entropy_with_logits(jax.lax.stop_gradient(targets), logits)


def _sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: Any,
    num_classes: Any,
    num_true: int,
    sampled_values: Any,
    seed: int | None,
    remove_accidental_hits: bool,
) -> tuple[jax.Array, jax.Array]:
    """Return logits, less the logarithm of the expected counts, and targets: right classes, then drawn ones."""
    right = convert_to_tensor(labels).astype(jnp.int64).reshape(-1, num_true)
    if sampled_values is None:
        sampled_values = log_uniform_candidate_sampler(right, num_true, num_sampled, True, num_classes, seed)
    drawn, right_count, drawn_count = (jax.lax.stop_gradient(convert_to_tensor(value)) for value in sampled_values)
    inputs, rows = convert_to_tensor(inputs), _rows(weights)
    own = jnp.einsum("bd,btd->bt", inputs, rows(right)) + embedding_lookup(biases, right)
    others = inputs @ rows(drawn.astype(jnp.int64)).T + embedding_lookup(biases, drawn)
    if remove_accidental_hits:
        hits = (right[:, :, None] == drawn).any(1)
        others = jnp.where(hits, jnp.finfo(others.dtype).min, others)
    logits = jnp.concatenate([own - jnp.log(right_count), others - jnp.log(drawn_count)], 1)
    shares = jnp.concatenate([jnp.full_like(own, 1 / num_true), jnp.zeros_like(others)], 1)
    return logits, shares


def _rows(weights: Any) -> Callable[[Any], jax.Array]:
    """Return the function that looks rows up, in one table or in several that are one after another in `div` order."""
    if isinstance(weights, list | tuple):
        weights = weights[0] if len(weights) == 1 else jnp.concatenate([convert_to_tensor(part) for part in weights])
    return lambda ids: embedding_lookup(weights, ids)
