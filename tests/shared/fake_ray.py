"""Ray's actors as objects of this process, whose methods run in threads, and which can go and freeze as processes do."""

import concurrent.futures
import pickle
import threading
import types
from typing import Any

from tfdist_jax._servers._ray_actors import ServerActor, WorkerActor
from tfdist_jax._servers._ray_peers import Peer


class RayActorError(Exception):
    """The actor has gone."""


class ObjectLostError(Exception):
    """An answer has gone."""


class GetTimeoutError(TimeoutError):
    """It takes longer."""


class FakeRay:
    """What the engine takes of the module, and of a `RayCluster`.

    Attributes:
        actors: Those that are there, by their jobs and numbers.
    """

    exceptions = types.SimpleNamespace(
        RayActorError=RayActorError, ObjectLostError=ObjectLostError, GetTimeoutError=GetTimeoutError
    )

    def __init__(self, servers: int, workers: int) -> None:
        """Start so many."""
        self.ray = self
        self._threads = concurrent.futures.ThreadPoolExecutor(64)
        self.actors: dict[tuple[str, int], FakeActor] = {}
        for job, count in (("ps", servers), ("worker", workers)):
            for i in range(count):
                self.start(job, i)

    def start(self, job: str, index: int) -> None:
        """Start a task's actor, or start it again."""
        self.actors[job, index] = FakeActor(ServerActor if job == "ps" else WorkerActor, self._threads)

    def wait_for_peer(self, job: str, index: int, is_over: Any = None) -> Peer | None:
        """Return a task's actor, as soon as it is there; None if `is_over()`."""
        while self.actors[job, index].is_gone:
            if is_over is not None and is_over():
                return None
            threading.Event().wait(0.01)
        actor = self.actors[job, index]
        return Peer(self, actor, actor.listener.endpoint)

    def threads_of(self, job: str, index: int) -> set[threading.Thread]:
        """Return the threads in which an actor's methods run."""
        return self.actors[job, index].running

    def is_initialized(self) -> bool:
        """Whether it runs."""
        return True

    def get(self, asked: Any, timeout: float | None = None) -> Any:
        """Wait for answers."""
        if isinstance(asked, list):
            return [self.get(each, timeout) for each in asked]
        try:
            return pickle.loads(asked.result(timeout))
        except concurrent.futures.TimeoutError as error:
            raise GetTimeoutError from error

    def kill(self, actor: "FakeActor") -> None:
        """End an actor."""
        actor.end()

    def close(self) -> None:
        """End all."""
        for actor in self.actors.values():
            actor.end()
        self._threads.shutdown(wait=False)


_ACTORS: dict[int, "FakeActor"] = {}


def _find(key: int) -> "FakeActor":
    return _ACTORS[key]


class FakeActor:
    """An actor. What it is given, and what it gives, are copies, as between processes."""

    def __init__(self, kind: type, threads: Any) -> None:
        """Make its object."""
        self._object, self._threads = kind({}, "127.0.0.1"), threads
        self.listener = self._object.listener
        self._handler, self.listener.handler = self.listener.handler, self._handle
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.is_gone = False
        self.running: set[threading.Thread] = set()
        self._asked: list[concurrent.futures.Future[bytes]] = []
        _ACTORS[id(self)] = self

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(remote=lambda *arguments: self._ask(name, pickle.dumps(arguments)))

    def __reduce__(self) -> Any:
        return _find, (id(self),)

    def _ask(self, name: str, arguments: bytes) -> "concurrent.futures.Future[bytes]":
        answer: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        if self.is_gone:
            answer.set_exception(RayActorError())
        else:
            self._asked.append(answer)
            self._threads.submit(self._do, name, arguments, answer)
        return answer

    def _do(self, name: str, arguments: bytes, answer: "concurrent.futures.Future[bytes]") -> None:
        self._goes_on.wait()
        if self.is_gone:
            return
        self.running.add(threading.current_thread())
        try:
            found = pickle.dumps(getattr(self._object, name)(*pickle.loads(arguments)))
        except BaseException as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(found)
        finally:
            self.running.discard(threading.current_thread())

    def _handle(self, method: str, arguments: Any) -> Any:
        self._goes_on.wait()
        self.running.add(threading.current_thread())
        try:
            return self._handler(method, arguments)
        finally:
            self.running.discard(threading.current_thread())

    def end(self) -> None:
        """Go: who waits for it is told."""
        self.is_gone = True
        self.listener.close()
        self._goes_on.set()
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(RayActorError())

    def freeze(self) -> None:
        """Answer nothing until `thaw`."""
        self._goes_on.clear()

    def thaw(self) -> None:
        """Go on."""
        self._goes_on.set()
