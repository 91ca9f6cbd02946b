"""The coordinator's end of a cluster of processes: servers that hold its variables, and workers that run its closures."""

import contextlib
import functools
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from tfdist_jax._cluster import Timeouts
from tfdist_jax._coordinator import (
    Closure,
    DataLostError,
    DataSource,
    HeldArray,
    HeldElement,
    WorkerLostError,
    being_worker,
    current_worker,
    fetch,
)
from tfdist_jax._errors import ServerLostError, make_server_lost_error
from tfdist_jax._internals import default_device
from tfdist_jax._servers._held_data import Held, Released
from tfdist_jax._servers._plan import ExportedPart, Part, Plan
from tfdist_jax._servers._ray_cluster import RayCluster
from tfdist_jax._servers._ray_data import DataHolder
from tfdist_jax._servers._ray_peers import ActorLostError, Peer, ask_servers, call_servers
from tfdist_jax._servers._runner import BeforeChanges, Outcome, Runner
from tfdist_jax._servers._server import Caller
from tfdist_jax._servers._soon import call_soon, start_calls

_log = logging.getLogger("tfdist_jax")
_SOON_S = 0.2
_NO_CLOSURE = Closure(lambda: None)


@final
class RayServers:
    """Reaches the cluster's servers, and runs plans with them: `Servers`.

    Attributes:
        session: What the coordinator calls itself.
        peers: The servers.
    """

    def __init__(self, cluster: RayCluster, count: int) -> None:
        """Wait for so many servers, and let them forget what they hold for another coordinator."""
        self._ray = cluster.ray
        start_calls()
        self.session = secrets.token_hex(8)
        self.peers = [cluster.wait_for_peer("ps", i) for i in range(count)]
        self._call(self.peers, "begin", [[self.session]] * count)
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._own, self._turns = _Own(), itertools.count()

    def set(self, server: int, arrays: Mapping[int, np.ndarray]) -> None:
        """Let a server hold arrays."""
        self._call([self.peers[server]], "set", [[self.session, arrays]])

    def get(self, server: int, cells: Sequence[int]) -> list[np.ndarray]:
        """Return arrays that a server holds."""
        return self._call([self.peers[server]], "get", [[self.session, cells]])[0]

    @contextlib.contextmanager
    def taking_turn(self) -> Iterator[None]:
        """Keep others from changing what servers hold, in whose place this thread changes it."""
        if self._own.turn is not None:
            yield
            return
        turn = self._own.turn = next(self._turns)
        try:
            for peer in self.peers:  # All in one order: who has the first one gets the others.
                self._call([peer], "take_turn", [[self.session, turn]])
            yield
        finally:
            self._own.turn = None
            for peer in self.peers:
                peer.actor.call.remote("end_turn", self.session, turn)

    def drop(self, server: int, cells: Sequence[int]) -> None:
        """Let a server hold arrays no longer; nobody waits for that. Finalizers may call it."""
        call_soon(functools.partial(self._drop, server, cells))

    def _drop(self, server: int, cells: Sequence[int]) -> None:
        if self._ray.is_initialized():
            self.peers[server].actor.call.remote("drop", self.session, cells)

    def record(self, plan: Plan) -> dict[str, Any]:
        """Return what the runs of the present closure have noted when they came to run this plan."""
        worker: Any = current_worker()
        return {} if worker is None else worker.record(plan.name)

    def run(
        self, plan: Plan, parts: Mapping[str, Part], arguments: Sequence[Any], kept: Sequence[Sequence[int]] = ()
    ) -> Outcome:
        """Run a plan on the worker that this thread stands for, or in this process where it stands for none or would compute nothing.

        Args:
            plan: The plan.
            parts: What it computes, compiled.
            arguments: Its arguments.
            kept: Which of its results stay with the worker, in groups that are fetched together.
        """
        worker: Any = current_worker()
        if worker is None or not plan.parts or self._own.turn is not None:
            return self.run_here(plan, parts, arguments, lambda arrays: None)
        self._load(plan, parts)
        with _as_users_error():
            return worker.run_plan(plan, parts, arguments, kept)

    def run_here(
        self, plan: Plan, parts: Mapping[str, Part], arguments: Sequence[Any], before_changes: BeforeChanges
    ) -> Outcome:
        """Run a plan, all of which a server does not do itself, in this process; the arguments are those of `Runner.run`."""
        self._load(plan, parts)
        worker: Any = current_worker()
        caller = Caller(self.session, turn=self._own.turn) if worker is None else worker.next_call(self._own.turn)
        sender = functools.partial(caller.sender, plan.name)
        ask = lambda messages, sent, number: ask_servers(self.peers, messages, sent, sender(number))
        with _as_users_error():
            runner = Runner({name: parts[name] for name in plan.parts})
            return runner.run(plan, list(map(_bring, arguments)), ask, before_changes)

    def _load(self, plan: Plan, parts: Mapping[str, Part]) -> None:
        """Let the servers have what they compute for a plan."""
        with self._lock:
            if plan.name in self._known:
                return
            of_servers: dict[int, dict[str, ExportedPart]] = {}
            for message in plan.messages:
                exported = {name: parts[name].export("cpu") for name in message.parts}
                of_servers.setdefault(message.server, {}).update(exported)
            loads = [[self.session, of_one] for of_one in of_servers.values()]
            self._call([self.peers[server] for server in of_servers], "load", loads)
            self._known.add(plan.name)

    def _call(self, peers: Sequence[Peer], method: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Call a method of servers, of each with arguments of its own."""
        with _as_users_error():
            return call_servers([(peer, method, given) for peer, given in zip(peers, arguments, strict=True)])


class _Own(threading.local):
    """What is a thread's own: its turn with the servers, if it has one."""

    turn: int | None = None


@final
class RayWorker:
    """A worker in a process of its own, which holds data and runs programs; what else a closure does, a thread of this process does."""

    def __init__(self, cluster: RayCluster, index: int, servers: RayServers) -> None:
        """Wait for a worker of the cluster."""
        self.index, self._cluster, self._servers = index, cluster, servers
        self._ray = cluster.ray
        # What cannot leave this process is computed here, beside that of other workers.
        devices = jax.local_devices(backend="cpu")
        self.device = devices[index % len(devices)]
        self._closure = _NO_CLOSURE
        self._oldest, self._calls, self._records = lambda: 0, itertools.count(), itertools.count()
        self._lost = ""
        self._connect(None)

    def _connect(self, is_over: Callable[[], bool] | None) -> None:
        while (peer := self._cluster.wait_for_peer("worker", self.index, is_over)) is not None:
            self._peer = peer
            self._data = DataHolder(
                functools.partial(self._use_data, peer), functools.partial(self._release_data, peer)
            )
            self._known: set[str] = set()
            limit_s = Timeouts.of_environment().heartbeat_s
            try:
                self._platform = peer.ask("ping", limit_s)["platform"]
                peer.ask("begin", limit_s, self._servers.session, self._servers.peers)
            except ActorLostError as error:
                self._give_up(error)
                time.sleep(_SOON_S)
            else:
                return

    def run(self, closure: Closure, oldest: Callable[[], int]) -> Any:
        """Call the closure's function here, whose programs run there."""
        self._closure, self._oldest, self._calls, self._records = closure, oldest, itertools.count(), itertools.count()
        try:
            with being_worker(self), jax.default_device(self.device):
                return closure.fn()
        finally:
            self._closure = _NO_CLOSURE  # It holds what the last one has had and made.

    def recover(self, is_over: Callable[[], bool]) -> None:
        """Wait until the worker's process is there again, or `is_over()`."""
        _log.warning("The worker %d has gone; its closure runs on another one. %s", self.index, self._lost)
        self._connect(is_over)
        if not is_over():
            _log.warning("The worker %d is back.", self.index)

    def next_call(self, turn: int | None = None) -> Caller:
        """Return which run of a program the next one for the present closure is."""
        return Caller(self._servers.session, self._closure.number, next(self._calls), self._oldest(), turn)

    def record(self, plan: str) -> dict[str, Any]:
        """Return what the runs of the present closure have noted when they came to run this plan."""
        return self._closure.notes.setdefault((next(self._records), plan), {})

    def run_plan(
        self, plan: Plan, parts: Mapping[str, Part], arguments: Sequence[Any], kept: Sequence[Sequence[int]]
    ) -> Outcome:
        """Run a plan there, as `RayServers.run`.

        Raises:
            WorkerLostError: If the process has gone, or gives no sign of life.
        """
        if plan.name not in self._known:
            exported = {name: parts[name].export(self._platform) for name in plan.parts}
            self._call("load", self._servers.session, plan, exported)
            self._known.add(plan.name)
        sent, caller = list(map(self._sent, arguments)), self.next_call()
        with self._data.releasing() as released:
            outcome = self._call("run", plan.name, sent, caller, kept, released)
        for number, places in zip(outcome.kept, kept, strict=True):
            arrays = HeldElement(self._data, number).stand_for(outcome.results[place] for place in places)
            for place, array in zip(places, arrays, strict=True):
                outcome.results[place] = array
        return outcome

    def _sent(self, argument: Any) -> Any:
        """Return what the process gets for an argument: where it is, if it is there already."""
        if isinstance(argument, HeldArray) and argument.element.holder is self._data:
            return Held(argument.element.number, argument.place)
        return np.asarray(argument)

    def source_of(self, key: Any, prepare: Callable[[], tuple[Callable[..., Any], Sequence[Any]]]) -> DataSource:
        """Let a source of data be in the process: `DataWorker.source_of`."""
        return self._data.source_of(key, prepare)

    def _use_data(self, peer: Peer, method: str, released: Released, *arguments: Any) -> Any:
        """Call a method of the process's `HeldData`; the closure runs again if the process has gone, unless it is another worker's.

        Raises:
            DataLostError: If it has gone, and this thread does not stand for the worker.
        """
        if current_worker() is self and peer is self._peer:
            return self._call("use_data", method, self._servers.session, released, *arguments)
        try:
            return peer.call("use_data", method, self._servers.session, released, *arguments)
        except ActorLostError as error:
            raise DataLostError(
                f"These data were in the process of the worker {self.index}, which has gone. {error}"
            ) from error

    def _release_data(self, peer: Peer, released: Released) -> None:
        """Let the process hold something no longer; nobody waits for that."""
        if self._ray.is_initialized():
            peer.actor.use_data.remote("release", self._servers.session, released, {})

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return self._peer.call(method, *arguments)
        except ActorLostError as error:
            self._give_up(error)
            raise WorkerLostError(str(error)) from error

    def _give_up(self, error: ActorLostError) -> None:
        """End the process: it may come to life again."""
        self._ray.kill(self._peer.actor)
        self._lost = str(error)


def _bring(argument: Any) -> Any:
    """Return an argument where this thread computes; an array of NumPy's goes there by itself."""
    value = fetch(argument)
    return jax.device_put(value, default_device()) if isinstance(value, jax.Array) else value


@contextlib.contextmanager
def _as_users_error() -> Iterator[None]:
    """Raise the error that users know where a server has gone."""
    try:
        yield
    except ServerLostError as error:
        raise make_server_lost_error[-1](str(error)) from error
