"""The processes of a program, and which of them this one is, as TF_CONFIG says it."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

from tfdist_jax._cluster._addresses import full_address

_JOBS = ("chief", "worker", "evaluator", "ps")
_AT_MOST_ONE = ("chief", "evaluator")


@final
@dataclasses.dataclass(frozen=True)
class Task:
    """One process, by its job and its number there.

    Attributes:
        type: "chief", "worker", "evaluator" or "ps".
        index: Its position in the job, from 0.
        address: "host:port", or None where it is not known.

    Example:
        >>> import tfdist_jax as td
        >>> cluster = td.Cluster.of_jobs({"worker": ["host-a:2222", "host-b:2222"]}, "worker", 1)
        >>> cluster.task.type, cluster.task.index, cluster.task.with_address
        ('worker', 1, 'worker 1 (host-b:2222)')
    """

    type: str
    index: int
    address: str | None = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.type} {self.index}"

    @property
    def with_address(self) -> str:
        """The task and where it runs, for messages."""
        return f"{self} ({self.address})" if self.address else str(self)


@final
@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of a program, and which of them this one is.

    The chief, if there is one, and the workers train together; they are numbered in this order. An evaluator runs
    beside them, alone.

    Attributes:
        tasks: All processes: the chief and the workers first.
        task: This process.
        source: Where this is known from, for messages.
        local_device_ids: The devices of this process, where whoever has started it says so.

    Raises:
        ValueError: If there is no such task, if a job is unknown, has no task or too many, if two tasks have the same
            address, or if the first process, which the others meet, has none.

    Example:
        >>> import tfdist_jax as td
        >>> cluster = td.Cluster.of_jobs({"worker": ["host-a:2222", "host-b"]}, "worker", 1)
        >>> cluster.process_id, cluster.num_processes, cluster.coordinator
        (1, 2, 'host-a:2222')
    """

    tasks: tuple[Task, ...]
    task: Task
    source: str = "the arguments"
    local_device_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        for job in _AT_MOST_ONE:
            if (count := self.count(job)) > 1:
                raise ValueError(f"{self.source} has {count} tasks in the job '{job}', which can have one only.")
        owners: dict[str, Task] = {}
        for task in self.tasks:
            other = owners.setdefault(task.address or str(task), task)
            if other is not task:
                raise ValueError(
                    f"{self.source} gives {other} and {task} the same address {task.address}. Each process needs a port "
                    "of its own."
                )
        # TensorFlow lets an evaluator find the others without being listed itself.
        if self.task not in self.tasks and self.task.type != "evaluator":
            raise ValueError(self._says_no_such_task())
        if self.training and not self.training[0].address:
            raise ValueError(f"{self.source} gives no address for {self.training[0]}, where the processes meet.")

    def _says_no_such_task(self) -> str:
        count = self.count(self.task.type)
        if not count:
            jobs = ", ".join(f"'{job}'" for job in dict.fromkeys(task.type for task in self.tasks))
            return f"{self.source} says that this process is {self.task}, but its cluster has only the jobs {jobs}."
        return (
            f"{self.source} says that this process is {self.task}, but its cluster has {count} task(s) in the job "
            f"'{self.task.type}': indices 0 to {count - 1}."
        )

    @classmethod
    def of_jobs(
        cls, jobs: Mapping[str, Sequence[str]], task_type: str, index: int, *, source: str = "the arguments"
    ) -> Self:
        """Return a cluster from the addresses of each job.

        Args:
            jobs: Job to addresses, "host" or "host:port"; without a port it is 2222.
            task_type: The job of this process.
            index: Its index there.
            source: Where this is known from, for messages.

        Raises:
            ValueError: If something does not fit together.
        """
        for job in (*jobs, task_type):
            if job not in _JOBS:
                raise ValueError(f"{source} names the job '{job}'; there are {', '.join(_JOBS)}.")
        tasks = [
            Task(job, i, full_address(address, source)) for job in _JOBS for i, address in enumerate(jobs.get(job, ()))
        ]
        own = Task(task_type, index)
        return cls(tuple(tasks), next((task for task in tasks if task == own), own), source)

    @classmethod
    def of_processes(
        cls,
        coordinator: str,
        num_processes: int,
        process_id: int,
        *,
        source: str = "the arguments",
        local_device_ids: Sequence[int] | None = None,
    ) -> Self:
        """Return a cluster of workers of which only the first one's address is known.

        Raises:
            ValueError: If something does not fit together.
        """
        if num_processes < 1:
            raise ValueError(f"{source} gives {num_processes} processes; there is at least one.")
        addresses = [full_address(coordinator, source), *[None] * (num_processes - 1)]
        tasks = tuple(Task("worker", i, address) for i, address in enumerate(addresses))
        own = next((task for task in tasks if task.index == process_id), Task("worker", process_id))
        return cls(tasks, own, source, None if local_device_ids is None else tuple(local_device_ids))

    @classmethod
    def of_tf_config(cls, text: str, *, source: str = "TF_CONFIG") -> Self | None:
        """Return the cluster that TF_CONFIG describes, or None if it describes none.

        Args:
            text: JSON, such as `{"cluster": {"worker": ["host-a:2222", "host-b:2222"]}, "task": {"type": "worker",
                "index": 0}}`.
            source: What the text is from, for messages.

        Raises:
            ValueError: If the text is no such JSON, or if something does not fit together.
        """
        config = _parsed(text, source)
        jobs = config.get("cluster") or {}
        if not jobs:
            return None
        if not isinstance(jobs, dict):
            raise ValueError(f"{source} needs an object from jobs to addresses as 'cluster', got {jobs!r}.")
        for job, addresses in jobs.items():
            if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
                raise ValueError(f"{source} needs a list of \"host:port\" for the job '{job}', got {addresses!r}.")
        task = config.get("task")
        if not isinstance(task, dict) or not {"type", "index"} <= set(task):
            raise ValueError(
                f"{source} does not say which process this is: it needs a 'task' such as "
                f'{{"type": "worker", "index": 0}}, got {task!r}.'
            )
        return cls.of_jobs(jobs, str(task["type"]), _index(task["index"], source), source=source)

    def count(self, job: str) -> int:
        """Return how many tasks a job has."""
        return sum(task.type == job for task in self.tasks)

    @property
    def training(self) -> tuple[Task, ...]:
        """The processes that train together, by process number."""
        return tuple(task for task in self.tasks if task.type in ("chief", "worker"))

    @property
    def num_processes(self) -> int:
        """How many processes train together; an evaluator is alone."""
        return len(self.training) if self.trains else 1

    @property
    def process_id(self) -> int:
        """The number of this process; 0 for an evaluator."""
        return self.training.index(self.task) if self.trains else 0

    @property
    def trains(self) -> bool:
        """Whether this process is one of those that train together."""
        return self.task in self.training

    @property
    def coordinator(self) -> str:
        """The address of process 0, where the others meet it."""
        return self.training[0].address or ""

    def to_tf_config(self) -> str:
        """Return the cluster as TF_CONFIG's string; only where all addresses are known."""
        jobs: dict[str, list[str | None]] = {}
        for task in self.tasks:
            jobs.setdefault(task.type, []).append(task.address)
        return json.dumps({"cluster": jobs, "task": {"type": self.task.type, "index": self.task.index}})


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        hint = " JSON wants double quotes: write it with `json.dumps`." if "'" in text else ""
        raise ValueError(f"{source} is no JSON ({error}).{hint} It is: {text}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{source} must be an object with 'cluster' and 'task', got: {text}")
    return config


def _index(value: Any, source: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdigit():
        raise ValueError(f"{source} needs a number from 0 on as the task's 'index', got {value!r}.")
    return int(text)
