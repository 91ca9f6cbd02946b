"""Programs over cells: what is read becomes an input, what is written an output whose memory is reused."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax._internals import current_trace, eval_trace, set_current_trace
from tfdist_jax._multiprocess._agreed_program import CheckedJit
from tfdist_jax._stateful import _capture, _state
from tfdist_jax._stateful._capture import capture
from tfdist_jax._stateful._served_program import make_program
from tfdist_jax._stateful._storage import PLAIN


class Box:
    """A cell."""

    trainable = True
    storage = PLAIN

    def __init__(self, value):
        self.stored = jnp.asarray(value)


def place_of(array):
    return array.unsafe_buffer_pointer()


def test_only_touched_cells_are_inputs():
    used, written, other = Box(1.0), Box(2.0), Box(3.0)

    def fn(x):
        _state.write(written, _state.read(used) + x)
        return _state.read(written)

    captured = capture(fn, [jnp.float32(1)])
    assert captured.cells == (used, written) or captured.cells == (used,)
    assert captured.written == (written,)
    assert other not in captured.cells


def test_a_program_reads_the_values_of_its_call_and_writes_back():
    box = Box(1.0)
    program = make_program(lambda x: _state.write(box, _state.read(box) * x) or _state.read(box), [jnp.float32(2)])
    assert float(program([jnp.float32(2)])) == 2
    box.stored = jnp.float32(10)
    assert float(program([jnp.float32(3)])) == 30
    assert float(box.stored) == 30


def test_cells_may_hold_random_keys():
    box = Box(0.0)
    box.stored = jax.random.key(3)
    program = make_program(lambda: jax.random.key_data(_state.read(box)), [])
    assert program([]).tolist() == [0, 3]


def test_reads_inside_nested_programs_are_inputs_too():
    box = Box([1.0, 2.0])

    def fn(x):
        inner = jax.jit(lambda y: y * _state.read(box).sum())
        total, _ = jax.lax.scan(lambda c, _: (c + inner(x), None), x, None, length=2)
        return total

    program = make_program(fn, [jnp.float32(1)])
    assert float(program([jnp.float32(1)])) == 7
    box.stored = jnp.array([0.0, 0.0])
    assert float(program([jnp.float32(1)])) == 1


def test_the_memory_of_a_written_cell_is_reused():
    box = Box(np.ones((256, 256), np.float32))
    program = make_program(lambda: _state.write(box, _state.read(box) + 1), [])
    program([])
    before = place_of(box.stored)
    program([])
    assert place_of(box.stored) == before


def test_an_array_that_is_held_elsewhere_is_left_alone():
    box = Box(np.ones((8,), np.float32))
    program = make_program(lambda: _state.write(box, _state.read(box) + 1), [])
    held = box.stored
    for _ in range(3):
        program([])
    assert held.tolist() == [1.0] * 8
    assert box.stored.tolist() == [4.0] * 8


def test_two_cells_with_one_array_are_both_right():
    first, second = Box([1.0]), Box([5.0])
    second.stored = first.stored

    def fn():
        _state.write(first, _state.read(first) + 1)
        _state.write(second, _state.read(second) * 10)

    make_program(fn, [])([])
    assert (first.stored.tolist(), second.stored.tolist()) == ([2.0], [10.0])


def test_a_programs_first_call_takes_no_array_that_another_thread_is_giving_away(monkeypatch):
    box, results = Box(jnp.zeros(1000)), []
    add = lambda: make_program(lambda: _state.write(box, _state.read(box) + 1), [])
    running, new = add(), add()
    running([])
    other = threading.Thread(target=lambda: results.append(new([])))
    copying, given_away = threading.Event(), threading.Event()
    copy, copy_what_others_hold = jnp.copy, _capture.copy_what_others_hold

    def start_other(arrays):
        copy_what_others_hold(arrays)
        if threading.current_thread() is not other:
            other.start()
            copying.wait(0.5)

    def copy_late(array):
        copying.set()
        assert given_away.wait(10)
        return copy(array)

    monkeypatch.setattr(_capture, "copy_what_others_hold", start_other)
    monkeypatch.setattr(jnp, "copy", copy_late)
    running([])
    given_away.set()
    other.join(60)
    assert results == [None]
    assert float(box.stored[0]) == 3


def test_a_program_that_moves_an_array_to_its_devices_undoes_no_step_of_another_thread(monkeypatch):
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    box, placed = Box(jnp.zeros(4)), jax.device_put(jnp.ones(4), NamedSharding(mesh, PartitionSpec()))
    moving = make_program(lambda x: _state.write(box, _state.read(box) + x), [placed])
    box.stored = jnp.zeros(4)  # Making a program moves its arrays, too.
    other = threading.Thread(target=lambda: _state.store(box, jnp.full(4, 10.0)))
    put = _capture.put

    def put_late(array, sharding):
        if other.ident is None:
            other.start()
            other.join(0.5)
        return put(array, sharding)

    monkeypatch.setattr(_capture, "put", put_late)
    moving([placed])
    other.join(60)
    assert float(box.stored[0]) in (10, 11)


def test_a_write_in_a_loop_body_is_refused():
    box = Box(1.0)

    def fn():
        jax.lax.fori_loop(0, 3, lambda i, c: _state.write(box, c) or c, _state.read(box))

    with pytest.raises(NotImplementedError, match="Return the new value from the body"):
        make_program(fn, [])


def test_a_write_in_a_plain_jax_transformation_is_refused():
    box = Box(1.0)
    with pytest.raises(RuntimeError, match="inside a JAX transformation"):
        jax.jit(lambda x: _state.write(box, x))(1.0)
    assert float(box.stored) == 1


def test_cells_on_different_devices_are_brought_together():
    devices = jax.devices()
    mesh = jax.make_mesh((4,), ("data",), devices=devices[:4], axis_types=(jax.sharding.AxisType.Auto,))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    near, far = Box(1.0), Box(2.0)
    near.stored = jax.device_put(near.stored, whole)
    far.stored = jax.device_put(far.stored, devices[6])
    program = make_program(lambda: _state.read(near) + _state.read(far), [])
    assert float(program([])) == 3
    assert far.stored.sharding.device_set == set(devices[:4])


@pytest.mark.parametrize(
    "trace",
    [lambda fn: capture(fn, [jnp.float32(1)]), lambda fn: CheckedJit(fn, None)(jnp.float32(1))],
    ids=["facade", "native"],
)
def test_an_interrupt_where_a_trace_ends_leaves_none_running(trace, monkeypatch):
    """Between the end of a function and where JAX comes back to the trace before."""
    manager, traced = type(set_current_trace(eval_trace)), []
    end = manager.__exit__

    def fn(x):
        traced.append(x + 1)
        return traced[0]

    def end_or_interrupt(self, *exception):
        if traced:
            traced.clear()
            raise KeyboardInterrupt
        end(self, *exception)

    monkeypatch.setattr(manager, "__exit__", end_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        trace(fn)
    assert current_trace() is eval_trace
    assert np.asarray(jnp.float32(1) + 2) == 3
