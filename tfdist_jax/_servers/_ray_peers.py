"""Ray's actors as other processes reach them: calls go by connections, and Ray says whether who does not answer is still there."""

import importlib
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, final

import numpy as np

from tfdist_jax._cluster import Timeouts
from tfdist_jax._errors import ServerLostError
from tfdist_jax._servers._connections import Caller, ConnectionLostError, Endpoint
from tfdist_jax._servers._plan import Round
from tfdist_jax._servers._server import Answer, Sender


class ActorLostError(RuntimeError):
    """An actor has gone, or gives no sign of life."""


@final
class Peer:
    """An actor of another process, whose methods are called.

    Attributes:
        actor: It, as Ray knows it.
        caller: Calls its methods.
    """

    def __init__(self, actor: Any, endpoint: Endpoint) -> None:
        """Call an actor that answers at an endpoint."""
        self.actor, self.caller = actor, Caller(endpoint, Timeouts.of_environment().heartbeat_s)

    def __reduce__(self) -> Any:
        return Peer, (self.actor, self.caller.endpoint)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method, as long as the actor lives.

        Raises:
            ActorLostError: If it has gone, or gives no sign of life.
        """
        return call_each([(self, method, arguments)])[0]

    def must_live(self, limit_s: float) -> None:
        """Check that it gives a sign of life within some seconds.

        Raises:
            ActorLostError: If it does not.
        """
        ask(self.actor.ping.remote(), limit_s)


def ask(answer: Any, limit_s: float) -> Any:
    """Wait for what Ray brings from an actor.

    Raises:
        ActorLostError: If it has gone, or has not answered after so many seconds.
    """
    ray: Any = importlib.import_module("ray")  # It is an extra.
    try:
        return ray.get(answer, timeout=limit_s)
    except ray.exceptions.GetTimeoutError as error:
        raise ActorLostError(f"There has been no sign of life for {limit_s:g} s.") from error
    except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
        first, *others = str(error).splitlines() or ["It has gone."]
        name = [line.strip() for line in others if line.strip().startswith("name: ")]
        raise ActorLostError(" ".join([first, *name])) from error


def call_each(calls: Sequence[tuple[Peer, str, Sequence[Any]]]) -> list[Any]:
    """Call methods of actors side by side, and return their answers, as long as all of them live.

    Raises:
        ActorLostError: If one has gone, or gives no sign of life for as long as `TFDIST_HEARTBEAT_TIMEOUT_S` says.
    """
    limit_s = Timeouts.of_environment().heartbeat_s
    try:
        with ExitStack() as stack:
            under_way = [stack.enter_context(peer.caller.calling(method, given)) for peer, method, given in calls]
            for (peer, _, _), call in zip(calls, under_way, strict=True):
                while not call.wait(limit_s):
                    peer.must_live(limit_s)
            return [call.result() for call in under_way]
    except ConnectionLostError as error:
        raise ActorLostError(str(error)) from error


def call_servers(calls: Sequence[tuple[Peer, str, Sequence[Any]]]) -> list[Any]:
    """Call methods of servers side by side, and return their answers.

    Raises:
        ServerLostError: If one has gone, or gives no sign of life.
    """
    try:
        return call_each(calls)
    except ActorLostError as error:
        raise ServerLostError(f"A server has gone, and the variables that it held with it. {error}") from error


def ask_servers(
    servers: Sequence[Peer], messages: Round, sent: Sequence[Sequence[np.ndarray]], sender: Sender
) -> list[Answer]:
    """Send messages to servers, and wait for the answers.

    Raises:
        ServerLostError: If a server has gone, or gives no sign of life.
    """
    pairs = zip(messages, sent, strict=True)
    return call_servers([(servers[message.server], "handle", (message, arrays, sender)) for message, arrays in pairs])
