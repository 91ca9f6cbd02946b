"""A training under several strategies, step by step beside the same on one device."""

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._sharding._layout import state_leaves
from tfdist_jax._strategy import Strategy
from tfdist_jax.strategies import SingleDevice

# What an array that is zero on one device may be elsewhere: gradients that cancel out.
_ROUNDING = 1e-7

# What functions of `jax.random` that draw are called in a program's text; those that split a key draw nothing.
_DRAWS = re.compile(r"@_(bernoulli|uniform|normal|truncated_normal|gumbel|randint|shuffle)\b|rng_bit_generator")


def check_equal(
    make_step: Callable[[Strategy], Any],
    make_state: Callable[[], Any],
    batches: Iterable[Any],
    strategies: Iterable[Strategy],
    *,
    rtol: float = 1e-4,
) -> None:
    """Require that a training is under each strategy what it is on one device.

    All begin with the state that `make_state` gives on one device, and take each batch side by side; after each step, the new states and
    what the steps return besides are compared, array by array.

    Args:
        make_step: Given a strategy, returns the step, such as of `strategy.jit`: `step(state, batch) -> (state, out)`.
        make_state: Makes the state, as for `strategy.init`.
        batches: Host batches, which are laid out by `strategy.put`: some of them may have rows that do not divide evenly.
        strategies: What to compare with `SingleDevice()`.
        rtol: How much an element may differ, as a share of the largest one of its array.

    Raises:
        AssertionError: At the first step that differs. It names the strategy, the step, the first array that differs, by how much, and a
            likely cause.

    Example:
        >>> import jax, numpy as np, tfdist_jax as td
        >>> def make_step(strategy):
        ...     @strategy.jit
        ...     def step(w, x):
        ...         loss, grad = strategy.value_and_grad(lambda w, x: ((x @ w) ** 2).mean(), has_aux=False)(w, x)
        ...         return w - 0.1 * grad, loss
        ...     return step
        >>> batches = [np.ones((rows, 4), np.float32) for rows in (16, 13)]
        >>> td.check_equal(make_step, lambda: jax.numpy.ones(4), batches, [td.Mirrored(), td.FSDP(min_size=1)])
    """
    alone = _Training(SingleDevice(), make_step, make_state)
    others = [_Training(strategy, make_step, make_state) for strategy in strategies]
    for other in others:
        _compare(other, alone, 0, rtol)
        other.begin_with(alone)
    for number, batch in enumerate(batches, 1):
        alone.take(batch)
        for other in others:
            other.take(batch)
            _compare(other, alone, number, rtol)


@final
class _Training:
    """A training under a strategy.

    Attributes:
        strategy: The strategy.
        results: What the last step has returned besides the state, and the state: whole, on the host.
    """

    def __init__(self, strategy: Strategy, make_step: Callable[[Strategy], Any], make_state: Callable[[], Any]) -> None:
        self.strategy = strategy
        self._step = make_step(strategy)
        self._state = strategy.init(make_state)
        self._batch: Any = None
        self.results: dict[str, Any] = {"state": strategy.fetch(self._state)}

    def begin_with(self, other: "_Training") -> None:
        """Take another's state, bit by bit."""
        shardings = jax.tree.map(lambda leaf: leaf.sharding, self._state)
        self._state = jax.device_put(other.results["state"], shardings)

    def take(self, batch: Any) -> None:
        """Run a step."""
        self._batch = self.strategy.put(batch)
        self._state, out = self._step(self._state, self._batch)
        self.results = {"out": self.strategy.fetch(out), "state": self.strategy.fetch(self._state)}

    def program(self) -> str:
        """Return the text of the step's program, before XLA has compiled it; empty if there is none."""
        return self._step.lower(self._state, self._batch).as_text() if hasattr(self._step, "lower") else ""


@final
@dataclasses.dataclass(frozen=True)
class _Difference:
    """An array that differs: its path, its values under a strategy and on one device."""

    path: str
    is_optimizer_state: bool
    found: np.ndarray
    expected: np.ndarray


def _compare(training: _Training, alone: _Training, step: int, rtol: float) -> None:
    if jax.tree.structure(training.results) != jax.tree.structure(alone.results):
        raise AssertionError(
            f"Under {training.strategy}, step {step} returns {jax.tree.structure(training.results)}, on one device "
            f"{jax.tree.structure(alone.results)}. Let `make_step` and `make_state` make the same whatever the strategy is."
        )
    seen = [leaf for leaf in state_leaves(alone.results) if leaf is not None]
    arrays = [list(map(_as_numbers, jax.tree.leaves(one.results))) for one in (training, alone)]
    differences = [
        _Difference(leaf.path, leaf.is_optimizer_state, found, expected)
        for leaf, found, expected in zip(seen, *arrays, strict=True)
        if not _is_equal(found, expected, rtol)
    ]
    if differences:
        when = f"after step {step}" if step else "before the first step"
        raise AssertionError(
            f"Under {training.strategy}, the training is not that of one device {when}: {_describe(differences[0])}. Of {len(seen)} "
            f"arrays, {len(differences)} differ by more than rtol={rtol:g} allows. Likely cause: "
            f"{_likely_cause(differences, training, step)}"
        )


def _is_equal(found: np.ndarray, expected: np.ndarray, rtol: float) -> bool:
    if found.shape != expected.shape:
        return False
    limit = rtol * _largest(expected) + _ROUNDING
    with np.errstate(invalid="ignore"):
        is_close = (np.abs(found - expected) <= limit) | (found == expected)
    return bool((is_close | (np.isnan(found) & np.isnan(expected))).all())


def _as_numbers(leaf: Any) -> np.ndarray:
    """Return an array's values as they can be subtracted, also random keys and small floats."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max(initial=0))


def _describe(one: _Difference) -> str:
    if one.found.shape != one.expected.shape:
        return f"`{one.path}` has the shape {one.found.shape}, expected is {one.expected.shape}"
    differing = np.nan_to_num(np.abs(one.found - one.expected), nan=np.inf)
    place = tuple(map(int, np.unravel_index(differing.argmax(), differing.shape)))
    share = differing[place] / (_largest(one.expected) or 1)
    where = f" at {list(place)}" if place else ""
    return f"`{one.path}` differs by {share:.2g} of its largest value{where}, {one.found[place]:.7g} instead of {one.expected[place]:.7g}"


def _likely_cause(differences: list[_Difference], training: _Training, step: int) -> str:
    """Say what most often makes such a difference."""
    first, replicas = differences[0], training.strategy.num_replicas
    if step == 0:
        return "`make_state` gives other numbers where arrays are split, as random keys of the kind `rbg` may."
    if first.found.shape != first.expected.shape:
        return (
            "each replica has returned its own. Return sums and means, or `td.Rows` of what has an entry for each row."
        )
    if any(one.path.startswith("out/") for one in differences) and (factor := _factor(first, replicas)):
        return f"it is {factor}: a sum over the {replicas} replicas in place of a mean, or the other way round."
    if factor := _factor(first, replicas):
        return f"it is {factor}: gradients are added up over the {replicas} replicas, or averaged, once too often."
    if any("batch_stats" in one.path.split("/") for one in differences):
        return "statistics of a replica's rows alone: BatchNorm takes those of the batch with `axis_name=strategy.batch_axes`."
    if all(one.is_optimizer_state for one in differences):
        return (
            "the parameters agree so far, the optimizer's state does not: gradients differ in a way that the update does not show, such "
            "as by a factor under Adam."
        )
    return _cause_in_program(training.program())


def _cause_in_program(program: str) -> str:
    if _DRAWS.search(program):
        return (
            "the step draws random numbers, and of a key each replica makes its own. `td.row_keys` gives those of one device; or draw "
            "none, as with a dropout of 0, to compare the rest."
        )
    if "bf16>" in program or "xf16>" in program:
        return "sums in another order, in 16 bits. Compare in float32, or allow a larger `rtol`, such as 0.05."
    return (
        "sums in another order, if the difference is small and stays so; then allow a larger `rtol`. Else something that depends on how "
        "many rows a replica has: look at the first array that differs."
    )


def _factor(one: _Difference, replicas: int) -> str:
    """Return how many times too large an array is, if that is the number of replicas or one by it; empty otherwise."""
    for factor, text in ((replicas, f"{replicas} times as large"), (1 / replicas, f"1/{replicas} as large")):
        is_so = np.allclose(one.found, factor * one.expected, rtol=1e-3, atol=1e-6 * _largest(one.expected))
        if replicas > 1 and one.expected.any() and is_so:
            return text
    return ""
