"""What runs in the processes of servers and workers, as Ray's actors."""

import contextlib
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from tfdist_jax._cluster import Timeouts
from tfdist_jax._errors import ServerLostError
from tfdist_jax._servers._plan import ExportedPart, Plan, Round, load_part
from tfdist_jax._servers._runner import Outcome, Runner
from tfdist_jax._servers._server import Answer, Caller, Sender, Server, StaleSenderError


@final
class ServerActor:
    """A server's process."""

    def __init__(self, environment: Mapping[str, str | None]) -> None:
        """Hold nothing, in the host's memory, in the environment of the server's task."""
        _be_in(environment)
        jax.config.update("jax_platforms", "cpu")
        self._server = Server()

    def ping(self) -> dict[str, Any]:
        """Be there; return the process's `pid` and the `platform` of its devices."""
        return _vitals()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `Server`."""
        return getattr(self._server, method)(*arguments)


@final
class WorkerActor:
    """A worker's process: it runs plans, and asks the servers itself."""

    def __init__(self, environment: Mapping[str, str | None]) -> None:
        """Know no program and no server, in the environment of the worker's task."""
        _be_in(environment)
        self._plans: dict[str, Plan] = {}
        self._parts: dict[str, Any] = {}
        self._session, self._servers = "", ()

    def ping(self) -> dict[str, Any]:
        """Be there; return the process's `pid` and the `platform` of its devices."""
        return _vitals()

    def begin(self, session: str, servers: Sequence[Any]) -> None:
        """Serve a coordinator, which calls itself so, and whose servers' actors these are; forget the programs of another one."""
        self._session, self._servers = session, servers
        self._plans, self._parts = {}, {}

    def load(self, session: str, plan: Plan, parts: Mapping[str, ExportedPart]) -> None:
        """Take a coordinator's plan and what it computes."""
        self._must_be_of(session)
        self._parts.update({name: load_part(exported) for name, exported in parts.items()})
        self._plans[plan.name] = plan

    def run(self, name: str, arguments: Sequence[Any], caller: Caller) -> Outcome:
        """Run a plan that has been loaded, for a closure.

        Raises:
            ServerLostError: If a server has gone.
            StaleSenderError: If another coordinator uses the worker.
        """
        ray: Any = importlib.import_module("ray")  # It is an extra.
        servers, parts, plans = self._servers, self._parts, self._plans
        self._must_be_of(caller.session)  # After those have been read, which another coordinator would replace before.
        ask = lambda messages, sent, number: ask_servers(ray, servers, messages, sent, caller.sender(name, number))
        outcome = Runner(parts).run(plans[name], arguments, ask)
        outcome.results[:] = map(np.asarray, outcome.results)
        return outcome

    def _must_be_of(self, session: str) -> None:
        if session != self._session:
            raise StaleSenderError("Another coordinator uses the worker.")


def _be_in(environment: Mapping[str, str | None]) -> None:
    """Take variables of the environment from the task: Ray gives an actor those of its node."""
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _vitals() -> dict[str, Any]:
    from jax import export  # Heavy.

    return {"pid": os.getpid(), "platform": export.default_export_platform()}


def ask_servers(
    ray: Any, servers: Sequence[Any], messages: Round, sent: Sequence[Sequence[np.ndarray]], sender: Sender
) -> list[Answer]:
    """Send messages to servers' actors, by Ray, and wait for the answers.

    Raises:
        ServerLostError: If a server has gone, or gives no sign of life.
    """
    asked = [servers[message.server] for message in messages]
    pairs = zip(asked, messages, sent, strict=True)
    answers = [server.call.remote("handle", message, arrays, sender) for server, message, arrays in pairs]
    return wait_for_servers(ray, answers, asked)


def wait_for_servers(ray: Any, answers: Sequence[Any], servers: Sequence[Any]) -> list[Any]:
    """Wait for servers' answers.

    Raises:
        ServerLostError: If one has gone, or gives no sign of life.
    """
    try:
        return wait_while_alive(ray, answers, servers)
    except ActorLostError as error:
        raise ServerLostError(f"A server has gone, and the variables that it held with it. {error}") from error


class ActorLostError(RuntimeError):
    """An actor has gone, or gives no sign of life."""


def wait_while_alive(ray: Any, answers: Sequence[Any], actors: Sequence[Any]) -> list[Any]:
    """Wait for actors' answers as long as all of them live.

    Raises:
        ActorLostError: If one has gone, or gives no sign of life for as long as `TFDIST_HEARTBEAT_TIMEOUT_S` says.
    """
    limit_s = Timeouts.of_environment().heartbeat_s
    try:
        while True:
            with contextlib.suppress(ray.exceptions.GetTimeoutError):
                return ray.get(answers, timeout=limit_s)
            ray.get([actor.ping.remote() for actor in actors], timeout=limit_s)
    except ray.exceptions.GetTimeoutError as error:
        raise ActorLostError(f"There has been no sign of life for {limit_s:g} s.") from error
    except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
        first, *others = str(error).splitlines() or ["It has gone."]
        name = [line.strip() for line in others if line.strip().startswith("name: ")]
        raise ActorLostError(" ".join([first, *name])) from error
