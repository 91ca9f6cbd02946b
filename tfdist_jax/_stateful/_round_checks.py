"""What closures that train in rounds must not do: change weights by themselves, of which a mean would know nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp

from tfdist_jax._stateful._capture import Captured
from tfdist_jax._stateful._handed_over import is_collecting
from tfdist_jax._stateful._served_assignments import needed_for
from tfdist_jax._stateful._state import Cell, cell_name


def must_leave_weights_to_rounds(captured: Captured) -> None:
    """Refuse a program that changes weights by itself in a closure that trains in rounds.

    Where gradients are put together, it must not change them by what it computes of weights, as a gradient step written by hand does;
    where each worker has copies, by nothing else than an optimizer.

    Raises:
        NotImplementedError: If it does.
    """
    if is_collecting():
        _must_not_follow_weights(captured)
    for cell in captured.written:
        if cell.storage.is_of_workers:
            cell.storage.must_be_changeable(cell)


def _must_not_follow_weights(captured: Captured) -> None:
    jaxpr = captured.jaxpr.jaxpr
    reads = jaxpr.invars[len(jaxpr.invars) - len(captured.cells) :]
    weights = {var for cell, var in zip(captured.cells, reads, strict=True) if _is_weight(cell, var)}
    for cell, atoms in _changes(captured):
        if not _is_weight(cell, cell.storage.example(cell.stored)):
            continue
        _, inputs = needed_for(atoms, jaxpr.eqns)
        if not weights.isdisjoint(inputs):
            raise NotImplementedError(
                f"A function changes {cell_name(cell)!r}, which is trainable, by what it has computed of trainable variables. In rounds "
                "of workers a gradient counts by its round's mean, or is dropped, and only what optimizers apply is known to be one. Use "
                "`optimizer.apply_gradients`; if it is no gradient, make the variable with trainable=False: each function's change counts."
            )


def _changes(captured: Captured) -> Iterator[tuple[Cell, Sequence[Any]]]:
    """Return the cells that a program changes, with the operands by which it does."""
    jaxpr = captured.jaxpr.jaxpr
    updated: set[Any] = set()
    for eqn in jaxpr.eqns:
        update = captured.updates.get(eqn.params.get("name", ""))
        if update is not None:
            updated.update(map(id, eqn.outvars))
            operands = eqn.invars[: len(eqn.invars) - len(update.cells)]
            yield from ((cell, operands) for cell in update.written)
    values = jaxpr.outvars[len(jaxpr.outvars) - len(captured.written) :]
    yield from ((cell, [atom]) for cell, atom in zip(captured.written, values, strict=True) if id(atom) not in updated)


def _is_weight(cell: Cell, value: Any) -> bool:
    dtype = getattr(value, "aval", value).dtype
    return cell.trainable and jnp.issubdtype(dtype, jnp.inexact)
