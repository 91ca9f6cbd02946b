"""What cells held is found as long as nothing has been given away."""

import gc

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._stateful import _state
from tfdist_jax._stateful._snapshot import Snapshot, read_snapshot
from tfdist_jax._stateful._storage import PLAIN


class Cell:
    trainable = False
    storage = PLAIN

    def __init__(self, stored):
        self.stored = stored


def test_a_moment_is_read_while_the_cells_hold_other_values():
    with jax.enable_x64(True):
        a, b = Cell(jnp.arange(3)), Cell(jnp.ones(2))
    held, iterator = a.stored, object()
    snapshot = Snapshot([a, b], [(iterator, "place 4")])
    a.stored = jnp.zeros(3)
    with _state.entering(snapshot.scope()):
        assert _state.read(a).tolist() == [0, 1, 2] and _state.read(a).dtype == np.int64
        _state.write(b, jnp.zeros(2))
        assert _state.read(b).tolist() == [0, 0]
        assert read_snapshot(iterator, lambda: "place 5") == "place 4"
        assert read_snapshot(object(), lambda: "now") == "now"
    assert _state.read(b).tolist() == [1, 1]
    assert read_snapshot(iterator, lambda: "place 5") == "place 5"
    assert held is not a.stored


def test_nothing_is_found_of_what_is_gone():
    dropped, donated = Cell(jnp.zeros(3)), Cell(jnp.zeros(3))
    dropped_snapshot, donated_snapshot = Snapshot([dropped]), Snapshot([donated])
    dropped.stored = donated.stored + 1
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated.stored)
    gc.collect()
    assert dropped_snapshot.scope() is None
    assert donated_snapshot.scope() is None


def test_nothing_is_found_that_is_not_computed_yet():
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: jnp.sin(x @ x), x))
    cell = Cell(slow(jnp.ones((500, 500))))
    snapshot = Snapshot([cell])
    assert snapshot.scope() is None
    cell.stored.block_until_ready()
    assert snapshot.scope() is not None
