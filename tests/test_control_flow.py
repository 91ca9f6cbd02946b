"""Conditionals and loops whose bodies read and write cells, inside captured programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfdist_jax._stateful import _control_flow
from tfdist_jax._stateful._served_program import make_program
from tfdist_jax._stateful._state import Merge, read, write
from tfdist_jax._stateful._storage import PLAIN


class Box:
    """A cell."""

    trainable = True
    storage = PLAIN

    def __init__(self, value):
        self.stored = jnp.asarray(value)


def run(fn, *args):
    arrays = [jnp.asarray(arg) for arg in args]
    return make_program(fn, arrays)(arrays)


@pytest.mark.parametrize(("index", "left"), [(0, [11.0, 0.0]), (1, [1.0, 20.0]), (7, [1.0, 20.0]), (-3, [11.0, 0.0])])
def test_branch_writes_the_cells_of_the_chosen_branch(index, left):
    a, b = Box(1.0), Box(0.0)

    def program(i):
        return _control_flow.branch(i, [lambda: write(a, read(a) + 10), lambda: write(b, read(a) * 20)])

    run(program, index)
    assert [float(a.stored), float(b.stored)] == left


def test_branches_are_traced_once_each():
    traced = []
    run(lambda i: _control_flow.branch(i, [lambda: traced.append(0), lambda: traced.append(1)]), 0)
    assert traced == [0, 1]


def test_branches_of_different_structure_are_named():
    with pytest.raises(TypeError, match="different structures"):
        run(lambda i: _control_flow.branch(i, [lambda: i, lambda: (i, i)]), 0)


def test_branch_inside_branch_writes():
    a = Box(0)

    def program(i):
        inner = lambda: _control_flow.branch(i, [lambda: None, lambda: write(a, read(a) + 5)])
        _control_flow.branch(i, [lambda: None, inner])

    run(program, 1)
    assert a.stored == 5


def test_while_loop_carries_cells_from_one_iteration_to_the_next():
    total = Box(0)

    def program(n):
        def body(i):
            write(total, read(total) + i)
            return [i + 1]

        return _control_flow.while_loop(lambda i: (i < n) & (read(total) < 100), body, [jnp.int32(0)])

    assert run(program, 5)[0] == 5 and total.stored == 10
    assert run(program, 1000)[0] < 1000 and total.stored >= 100


def test_loop_without_writes_is_traced_once():
    traced, factor = [], Box(3.0)

    def body(carry, x):
        traced.append(1)
        return carry + read(factor) * x, carry

    last, before = run(lambda xs: _control_flow.scan(body, jnp.float32(0), xs), [1.0, 2.0])
    assert (float(last), before.tolist(), len(traced)) == (9.0, [0.0, 3.0], 1)


def test_scan_writes_cells_and_keeps_structures():
    seen = Box(0.0)

    def body(carry, x):
        write(seen, read(seen) + x["a"])
        return {"sum": carry["sum"] + x["a"]}, (x["a"], read(seen))

    last, (each, running) = run(
        lambda xs: _control_flow.scan(body, {"sum": jnp.float32(0)}, {"a": xs}), [1.0, 2.0, 3.0]
    )
    assert last["sum"] == 6 and seen.stored == 6
    np.testing.assert_array_equal(running, [1, 3, 6])
    np.testing.assert_array_equal(each, [1, 2, 3])


def test_scan_runs_a_number_of_times_without_entries():
    last, _ = run(lambda x: _control_flow.scan(lambda c, _: (c * 2, None), x, None, length=4), 1)
    assert last == 16


def test_scan_over_cells_is_differentiable():
    def loss(x):
        return _control_flow.scan(lambda c, _: (c * x, None), jnp.float32(1), None, length=3)[0]

    assert run(jax.grad(loss), 2.0) == 12


def test_strongest_merge_of_a_body_is_kept():
    scope = _control_flow.BodyScope(None)
    box = Box(1.0)
    scope.write(box, jnp.float32(2), Merge.SUM_OF_DELTAS)
    scope.write(box, jnp.float32(3), Merge.SAME)
    assert scope.merges[id(box)] == (box, Merge.SUM_OF_DELTAS) and scope.read(box) == 3


def test_cells_cannot_be_written_inside_plain_transformations():
    box = Box(1.0)
    with pytest.raises(RuntimeError, match="assigned inside a JAX transformation"):
        jax.jit(lambda i: _control_flow.branch(i, [lambda: None, lambda: write(box, jnp.float32(2))]))(0)
