"""What blocks change in a thread is as before when they have ended, wherever an interrupt comes."""

import contextvars

import pytest

from tfdist_jax._autodiff._tape import Tape
from tfdist_jax._autodiff._tape_trace import STARTED
from tfdist_jax._thread_state import having, restoring_thread_state, restoring_variables
from tfdist_jax.testing import interruptions

NUMBER = contextvars.ContextVar("number", default=0)


def test_a_variable_has_its_value_inside_only():
    with having(NUMBER, 1):
        assert NUMBER.get() == 1
        with having(NUMBER, 2):
            assert NUMBER.get() == 2
        assert NUMBER.get() == 1
    assert NUMBER.get() == 0


@pytest.mark.parametrize("restoring", [restoring_variables, restoring_thread_state])
def test_an_interrupt_anywhere_leaves_variables_as_they_were(restoring):
    def block():
        with restoring(), having(NUMBER, 2), having(NUMBER, 3):
            len("")

    with having(NUMBER, 1):
        places = 0
        for interruption in interruptions():
            with interruption:
                block()
            places += 1
            assert NUMBER.get() == 1
    assert places > 10 and NUMBER.get() == 0


def test_variables_of_others_stay_as_a_block_that_raises_has_left_them():
    other = contextvars.ContextVar("other", default=0)
    with pytest.raises(KeyError), restoring_thread_state():
        other.set(1)
        raise KeyError
    assert other.get() == 1


def test_a_tape_that_is_left_open_sees_nothing_any_more():
    with pytest.raises(KeyError), restoring_thread_state():
        Tape().start()
        raise KeyError
    assert STARTED.get() == ()


def test_a_generator_that_is_freed_puts_nothing_back():
    def generate():
        with restoring_thread_state():
            yield

    generator = generate()
    next(generator)
    with having(NUMBER, 3):
        generator.close()
        assert NUMBER.get() == 3
