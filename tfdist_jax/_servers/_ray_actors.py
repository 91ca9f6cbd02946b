"""What runs in the processes of servers and workers, as Ray's actors."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from tfdist_jax._cluster import Timeouts
from tfdist_jax._coordinator import ArrayKind
from tfdist_jax._servers._connections import Endpoint, Handler, Listener
from tfdist_jax._servers._held_data import HeldData, Released
from tfdist_jax._servers._plan import ExportedPart, Plan, load_part
from tfdist_jax._servers._ray_peers import Peer, ask_servers
from tfdist_jax._servers._runner import Outcome, Runner
from tfdist_jax._servers._server import Caller, Server, StaleSenderError


@final
class ServerActor:
    """A server's process."""

    def __init__(self, environment: Mapping[str, str | None], host: str) -> None:
        """Hold nothing, in the host's memory, in the environment of the server's task; answer at this machine's address."""
        _be_in(environment)
        jax.config.update("jax_platforms", "cpu")
        self._server = Server()
        self.listener = _listen(host, lambda method, arguments: self.call(method, *arguments))

    def ping(self) -> dict[str, Any]:
        """Be there; return the process's `pid` and the `platform` of its devices."""
        return _vitals()

    def endpoint(self) -> Endpoint:
        """Return where methods can be called."""
        return self.listener.endpoint

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `Server`."""
        return getattr(self._server, method)(*arguments)


@final
class WorkerActor:
    """A worker's process: it runs plans, and asks the servers itself."""

    def __init__(self, environment: Mapping[str, str | None], host: str) -> None:
        """Know no program and no server, in the environment of the worker's task; answer at this machine's address."""
        _be_in(environment)
        self._plans: dict[str, Plan] = {}
        self._parts: dict[str, Any] = {}
        self._session, self._servers, self._data = "", (), HeldData()
        methods = {"load": self.load, "run": self.run, "use_data": self.use_data}
        self.listener = _listen(host, lambda method, arguments: methods[method](*arguments))

    def ping(self) -> dict[str, Any]:
        """Be there; return the process's `pid` and the `platform` of its devices."""
        return _vitals()

    def endpoint(self) -> Endpoint:
        """Return where methods can be called."""
        return self.listener.endpoint

    def begin(self, session: str, servers: Sequence[Peer]) -> None:
        """Serve a coordinator, which calls itself so and has these servers; forget the programs and the data of another one."""
        self._session, self._servers = session, servers
        self._plans, self._parts, self._data = {}, {}, HeldData()

    def load(self, session: str, plan: Plan, parts: Mapping[str, ExportedPart]) -> None:
        """Take a coordinator's plan and what it computes."""
        self._must_be_of(session)
        self._parts.update({name: load_part(exported) for name, exported in parts.items()})
        self._plans[plan.name] = plan

    def run(
        self,
        name: str,
        arguments: Sequence[Any],
        caller: Caller,
        kept: Sequence[Sequence[int]],
        released: Released,
    ) -> Outcome:
        """Run a plan that has been loaded, for a closure.

        Args:
            name: The plan's name.
            arguments: Its arguments, or where they are (`Held`).
            caller: The run.
            kept: Which of its results stay here, as the arrays of an element each.
            released: What nobody wants any more.

        Raises:
            ServerLostError: If a server has gone.
            StaleSenderError: If another coordinator uses the worker.
        """
        servers, parts, plans, data = self._servers, self._parts, self._plans, self._data
        self._must_be_of(caller.session)  # After those have been read, which another coordinator would replace before.
        data.release(released)
        ask = lambda messages, sent, number: ask_servers(servers, messages, sent, caller.sender(name, number))
        outcome = Runner(parts).run(plans[name], list(map(data.find, arguments)), ask)
        for places in kept:
            arrays = [outcome.results[place] for place in places]
            outcome.kept.append(data.keep(arrays))
            for place, array in zip(places, arrays, strict=True):
                outcome.results[place] = ArrayKind(array.shape, np.dtype(array.dtype))
        outcome.results[:] = [each if isinstance(each, ArrayKind) else np.asarray(each) for each in outcome.results]
        return outcome

    def use_data(self, method: str, session: str, released: Released, *arguments: Any) -> Any:
        """Release data of a coordinator, and call a method of `HeldData` with what is left."""
        data = self._data
        self._must_be_of(session)  # After that has been read, as in `run`.
        data.release(released)
        return getattr(data, method)(*arguments)

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


def _listen(host: str, handler: Handler) -> Listener:
    return Listener(host, handler, Timeouts.of_environment().heartbeat_s)


def _vitals() -> dict[str, Any]:
    from jax import export  # Heavy.

    return {"pid": os.getpid(), "platform": export.default_export_platform()}
