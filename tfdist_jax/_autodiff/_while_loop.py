"""A `while` loop that has a gradient although nobody knows how often it runs.

Its backward pass needs the state before each iteration, last ones first, and a program's memory has a size that is known. So states are
kept at some iterations: at each one as long as there is room, then at every second, every fourth ... What lies between two of them is
computed again, and kept likewise, when the backward pass comes there (Stumm and Walther, New algorithms for optimal online
checkpointing, 2010). With n places, loops of up to n iterations compute nothing again, and those of up to n * n everything once.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tfdist_jax._autodiff._pullbacks import is_differentiable

Arrays = Sequence[Any]
Step = Callable[[Any], Any]

_MOST_PLACES, _FEWEST_PLACES = 64, 4
_BYTES_KEPT = 2**26


class _Kept(NamedTuple):
    """States of a loop.

    Attributes:
        states: For each array of a state one with a leading axis of places.
        iterations: `[places]`, the iteration before which each is the state; -1 where there is none yet.
        stride: Those of all iterations that it divides are kept.
    """

    states: Any
    iterations: jax.Array
    stride: jax.Array


def repeat(condition: Step, step: Step, start: Any) -> Any:
    """Return the last state of a loop that repeats `state = step(state)` as long as `condition(state)`.

    It can be differentiated, any number of times, in reverse mode, unless there are effects inside, such as printing.

    Args:
        condition: Returns a boolean scalar.
        step: Returns a state like the one it gets.
        start: The first state, a structure of arrays.
    """
    leaves, tree = jax.tree.flatten(start)
    check = jax.make_jaxpr(lambda leaves: condition(tree.unflatten(leaves)))(leaves)
    body = jax.make_jaxpr(lambda leaves: jax.tree.leaves(step(tree.unflatten(leaves))))(leaves)
    # JAX refuses effects where there are custom derivatives.
    if check.effects or body.effects or not any(map(is_differentiable, leaves)):
        return jax.lax.while_loop(condition, step, start)
    run = jax.custom_vjp(functools.partial(_run, check, body))
    run.defvjp(functools.partial(_forward, check, body), functools.partial(_backward, check, body))
    return tree.unflatten(run(check.consts, body.consts, leaves))


def _call(program: ClosedJaxpr, consts: Arrays, arrays: Arrays) -> list[jax.Array]:
    return list(map(jnp.asarray, jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))(*arrays)))


def _run(check: ClosedJaxpr, body: ClosedJaxpr, checked: Arrays, used: Arrays, start: list[Any]) -> list[Any]:
    return jax.lax.while_loop(
        lambda state: _call(check, checked, state)[0], lambda state: _call(body, used, state), start
    )


def _forward(check: ClosedJaxpr, body: ClosedJaxpr, checked: Arrays, used: Arrays, start: list[Any]) -> Any:
    def step(carry: Any) -> Any:
        i, kept, state = carry
        return i + 1, _keep(kept, i, state), _call(body, used, state)

    carry = (jnp.int32(0), _empty(start), start)
    number, kept, last = repeat(lambda carry: _call(check, checked, carry[2])[0], step, carry)
    return last, (checked, used, number, kept)


def _backward(check: ClosedJaxpr, body: ClosedJaxpr, saved: Any, cotangents: Arrays) -> Any:
    checked, used, number, kept = saved
    step = functools.partial(_call, body, used)
    sums = [jnp.zeros_like(array) for array in used if is_differentiable(array)]
    moving = [cotangent for cotangent, s in zip(cotangents, kept.states, strict=True) if is_differentiable(s)]

    def pull_segment(carry: Any) -> Any:
        end, moving, sums, inner = carry
        begin = (end - 1) // kept.stride * kept.stride
        first = _state_at(kept, begin)
        inner = _record(step, first, end - begin, inner)
        pull = functools.partial(_pull_iteration, body, used, inner)
        _, moving, sums = repeat(lambda carry: carry[0] > 0, pull, (end - begin, moving, sums))
        return begin, moving, sums, inner

    blank = kept._replace(states=[jnp.zeros_like(s) for s in kept.states])
    carry = (number, moving, sums, blank)
    _, moving, sums, _ = repeat(lambda carry: carry[0] > 0, pull_segment, carry)
    return [None] * len(checked), _spread(used, sums), _spread(kept.states, moving)


def _pull_iteration(body: ClosedJaxpr, used: Arrays, kept: _Kept, carry: Any) -> Any:
    """Take the cotangents from after an iteration to before it, and add up those of the arrays that it uses."""
    end, moving, sums = carry
    i = end - 1
    begin = i // kept.stride * kept.stride
    state = _advance(functools.partial(_call, body, used), _state_at(kept, begin), i - begin)

    def smooth(moving: Arrays, used_moving: Arrays) -> list[Any]:
        results = _call(body, _spread(used, used_moving, used), _spread(state, moving, state))
        return [result for result in results if is_differentiable(result)]

    _, pull = jax.vjp(smooth, list(filter(is_differentiable, state)), list(filter(is_differentiable, used)))
    moving, added = pull(moving)
    return i, moving, [total + more for total, more in zip(sums, added, strict=True)]


def _spread(arrays: Arrays, moving: Arrays, others: Arrays | None = None) -> list[Any]:
    """Return `moving` in the places of the differentiable ones of `arrays`, and `others`, or None, in the rest."""
    given = iter(moving)
    rest = [None] * len(arrays) if others is None else others
    return [next(given) if is_differentiable(a) else other for a, other in zip(arrays, rest, strict=True)]


def _empty(state: Arrays) -> _Kept:
    size = sum(array.nbytes for array in state)
    # An even number: when it doubles the stride, the state that found no place must be one that is kept.
    places = max(_FEWEST_PLACES, min(_MOST_PLACES, _BYTES_KEPT // max(size, 1) // 2 * 2))
    states = [jnp.broadcast_to(array, (places, *array.shape)) for array in state]
    return _Kept(states, jnp.full(places, -1, jnp.int32), jnp.int32(1))


def _keep(kept: _Kept, i: Any, state: Arrays) -> _Kept:
    """Keep a state, if its iteration is one of those that are kept, in the place of one that is not any more."""
    is_free = lambda stride: (kept.iterations < 0) | (kept.iterations % stride != 0)
    stride = jnp.where(is_free(kept.stride).any(), kept.stride, 2 * kept.stride)
    place, is_kept = _first(is_free(stride)), i % stride == 0
    put = lambda array, value: array.at[place].set(jnp.where(is_kept, value, array[place]))
    states = [put(array, value) for array, value in zip(kept.states, state, strict=True)]
    return _Kept(states, put(kept.iterations, i), stride)


def _state_at(kept: _Kept, iteration: Any) -> list[Any]:
    place = _first(kept.iterations == iteration)
    return [array[place] for array in kept.states]


def _first(holds: jax.Array) -> jax.Array:
    # Not by `argmax`: where doubles are differentiated it counts in 64 bits, with which the program is not compiled; and JAX keeps a part
    # of each program that has one.
    places = jax.lax.iota(np.int32, holds.size)
    return jnp.min(jnp.where(holds, places, np.int32(holds.size - 1)))


def _record(step: Step, state: Any, number: Any, room: _Kept) -> _Kept:
    """Return states before some of `number` iterations from `state` on, in the memory of `room`."""
    kept = room._replace(iterations=jnp.full_like(room.iterations, -1), stride=jnp.ones_like(room.stride))

    def keep_and_step(carry: Any) -> Any:
        i, kept, state = carry
        return i + 1, _keep(kept, i, state), step(state)

    # What comes out of the last iteration is not asked for.
    i, kept, state = repeat(lambda carry: carry[0] < number - 1, keep_and_step, (jnp.int32(0), kept, state))
    return _keep(kept, i, state)


def _advance(step: Step, state: Any, number: Any) -> Any:
    _, state = repeat(
        lambda carry: carry[0] < number, lambda carry: (carry[0] + 1, step(carry[1])), (jnp.int32(0), state)
    )
    return state
