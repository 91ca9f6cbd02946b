"""Ray's actors as other processes reach them: calls go by connections, and Ray says whether who does not answer is still there."""

import importlib
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, final

import numpy as np

from tfdist_jax._cluster import Timeouts
from tfdist_jax._errors import ServerLostError
from tfdist_jax._servers._connections import Client, ConnectionLostError, Endpoint, PendingCall, answers_of
from tfdist_jax._servers._plan import Round
from tfdist_jax._servers._server import Answer, Sender

_SOON_S = 0.2


class ActorLostError(RuntimeError):
    """An actor has gone, or gives no sign of life."""


@final
class Peer:
    """An actor of another process, whose methods are called.

    Attributes:
        actor: It, as Ray knows it.
        client: Calls its methods.
    """

    def __init__(self, ray: Any, actor: Any, endpoint: Endpoint) -> None:
        """Call an actor of Ray's that answers at an endpoint."""
        self._ray, self.actor = ray, actor
        self.client = Client(endpoint, Timeouts.of_environment().heartbeat_s)

    def __reduce__(self) -> Any:
        return _peer_of, (self.actor, self.client.endpoint)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method, as long as the actor lives.

        Raises:
            ActorLostError: If it has gone, or gives no sign of life.
        """
        return call_each([(self, method, arguments)])[0]

    def connect(self, limit_s: float) -> PendingCall:
        """Return a connection to it; try for so long, as long as it lives.

        Raises:
            ActorLostError: If it has gone, or gives no sign of life.
            ConnectionLostError: If it lives, but cannot be connected to.
        """
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return self.client.connect()
            except ConnectionLostError:  # Of this process's doing, perhaps, as where it has too many files open.
                self.must_live(limit_s)
                if time.monotonic() > deadline:
                    raise
                time.sleep(_SOON_S)

    def must_live(self, limit_s: float) -> None:
        """Check that it gives a sign of life within some seconds.

        Raises:
            ActorLostError: If it does not.
        """
        self.ask("ping", limit_s)

    def ask(self, method: str, limit_s: float, *arguments: Any) -> Any:
        """Call a method of the actor by Ray.

        Raises:
            ActorLostError: If it has gone, or has not answered after so many seconds.
        """
        ray = self._ray
        try:
            return ray.get(getattr(self.actor, method).remote(*arguments), timeout=limit_s)
        except ray.exceptions.GetTimeoutError as error:
            raise ActorLostError(f"There has been no sign of life for {limit_s:g} s.") from error
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            first, *others = str(error).splitlines() or ["It has gone."]
            name = [line.strip() for line in others if line.strip().startswith("name: ")]
            raise ActorLostError(" ".join([first, *name])) from error


def _peer_of(actor: Any, endpoint: Endpoint) -> Peer:
    return Peer(importlib.import_module("ray"), actor, endpoint)  # It is an extra.


def call_each(calls: Sequence[tuple[Peer, str, Sequence[Any]]]) -> list[Any]:
    """Call methods of actors side by side, and return their answers, as long as all of them live.

    Raises:
        ActorLostError: If one has gone, or gives no sign of life for as long as `TFDIST_HEARTBEAT_TIMEOUT_S` says.
    """
    limit_s = Timeouts.of_environment().heartbeat_s
    try:
        with ExitStack() as stack:
            pending: list[PendingCall] = []
            for peer, method, arguments in calls:
                pending.append(stack.enter_context(peer.connect(limit_s)))
                pending[-1].begin(method, arguments)
            answers: dict[int, Any] = {}
            for found in answers_of(pending, limit_s):
                answers.update(found)
                if not found:
                    for place in set(range(len(calls))).difference(answers):
                        calls[place][0].must_live(limit_s)
            return [answers[place] for place in range(len(calls))]
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
