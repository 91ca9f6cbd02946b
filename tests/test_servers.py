"""What a server does with messages, once each."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from environment import LIMIT_S

from tfdist_jax._servers import Message, Part, Sender, Server, ServerCall, StaleSenderError

ADD = Part("add", jax.jit(lambda held, x: (held + x,)), (jax.ShapeDtypeStruct((), "f4"),) * 2)
ADDING = Message(0, reads=((7, 1),), calls=(ServerCall("add", (7,), (0,), (2,), (7,)),))
"""Adds the value 0 to the cell 7; gives what that has held before, the value 1, and what it holds then, 2."""


@pytest.fixture
def server():
    server = Server()
    server.begin("us")
    server.load("us", {"add": ADD.export("cpu")})
    server.set("us", {7: np.float32(1)})
    return server


def add(server, x, *tag, oldest=0, session="us"):
    answer = server.handle(ADDING, [np.float32(x)], Sender(session, (*tag, "program") if tag else None, oldest))
    return [float(value) for value in answer.values], answer.changes


def test_a_message_is_answered_once_and_then_again_as_it_was(server):
    assert add(server, 2, 0, 0, 0) == ([1, 3], 0)
    assert add(server, 10, 1, 0, 0) == ([3, 13], 1)
    assert add(server, 2, 0, 0, 0) == ([1, 3], 0)
    assert add(server, 2, 0, 0, 1) == ([13, 15], 2)
    assert float(server.get("us", [7])[0]) == 15


def test_a_message_without_a_tag_is_a_new_one_each_time(server):
    assert [add(server, 1)[0] for _ in range(2)] == [[1, 2], [2, 3]]


def test_closures_that_have_ended_elsewhere_are_not_heard(server):
    add(server, 2, 0, 0, 0)
    add(server, 2, 3, 0, 0, oldest=2)
    with pytest.raises(StaleSenderError, match="ended on another worker"):
        add(server, 2, 1, 0, 0)
    assert float(server.get("us", [7])[0]) == 5
    assert len(server._answers) == 1  # Others are not asked for again.


def test_another_coordinator_begins_anew(server):
    server.begin("others")
    for ask in (
        lambda: add(server, 2),
        lambda: server.get("us", [7]),
        lambda: server.set("us", {7: np.float32(5)}),
        lambda: server.load("us", {}),
        lambda: server.take_turn("us", 1),
    ):
        with pytest.raises(StaleSenderError, match="Another coordinator"):
            ask()
    server.set("others", {7: np.float32(5)})
    server.drop("us", [7])
    assert float(server.get("others", [7])[0]) == 5


def test_messages_wait_for_the_end_of_anothers_turn(server):
    server.take_turn("us", 1)
    others = threading.Thread(target=add, args=(server, 2))
    others.start()
    (held,) = server.get("us", [7])
    answer = server.handle(ADDING, [np.float32(1)], Sender("us", turn=1))  # Its own ones do not wait.
    assert float(held) == 1 and float(answer.values[1]) == 2
    others.join(0.2)
    assert others.is_alive()
    server.end_turn("us", 1)
    others.join(LIMIT_S)
    assert float(server.get("us", [7])[0]) == 4
    server.end_turn("us", 2)
    server.take_turn("us", 2)  # It was over before it came.
    assert add(server, 1)[0] == [4, 5]


def test_a_message_that_fails_changes_nothing(server):
    adding, missing = ADDING.calls[0], ServerCall("add", (99,), (0,), (None,))
    for sender in (Sender("us", (0, 0, 0, "program")), Sender("us")):
        with pytest.raises(KeyError):
            server.handle(Message(0, calls=(adding, missing)), [np.float32(5)], sender)
    assert float(server.get("us", [7])[0]) == 1 and add(server, 2, 0, 0, 1) == ([1, 3], 0)


def test_programs_of_a_closure_are_told_apart(server):
    server.handle(ADDING, [np.float32(1)], Sender("us", (0, 0, 0, "one")))
    server.handle(ADDING, [np.float32(1)], Sender("us", (0, 0, 0, "other")))
    assert float(server.get("us", [7])[0]) == 3


def test_what_is_dropped_is_held_no_longer(server):
    server.drop("us", [7, 8])
    with pytest.raises(KeyError):
        server.get("us", [7])


@pytest.mark.parametrize("is_replaced", [True, False])
def test_rows_replace_those_of_their_table_unless_others_read_it(server, is_replaced):
    types = (jax.ShapeDtypeStruct((4096, 8), "f4"), jax.ShapeDtypeStruct((), "i4"))
    part = Part("row", jax.jit(lambda table, i: (table.at[i].add(1.0),)), types, (0,) if is_replaced else ())
    server.load("us", {"row": part.export("cpu")})
    server.set("us", {1: np.zeros((4096, 8), np.float32)})
    change = Message(0, calls=(ServerCall("row", (1,), (0,), (None,), (1,)),))
    read = Message(0, reads=((1, 0),))
    run = lambda message, *sent: server.handle(message, sent, Sender("us")).values
    run(change, np.int32(3))
    place = server._arrays[1].unsafe_buffer_pointer()
    run(change, np.int32(3))
    assert (server._arrays[1].unsafe_buffer_pointer() == place) == is_replaced
    (seen,) = run(read)
    run(change, np.int32(3))
    assert seen[3].tolist() == [2.0] * 8 and server.get("us", [1])[0][3].tolist() == [3.0] * 8


def test_types_of_64_bits_stay_what_they_are(server):
    with jax.enable_x64(True):
        part = Part("long", jax.jit(lambda held: (held + jnp.int64(1),)), (jax.ShapeDtypeStruct((), "i8"),))
        server.load("us", {"long": part.export("cpu")})
    server.set("us", {2: np.int64(2**40)})
    message = Message(0, calls=(ServerCall("long", (2,), (), (0,), (2,)),))
    (value,) = server.handle(message, [], Sender("us")).values
    assert value.dtype == np.int64 and int(value) == 2**40 + 1
