"""`tf.train.ClusterSpec`: the addresses of a cluster's processes."""

from collections.abc import Mapping
from typing import Any, final


@final
class ClusterSpec:
    """Drop-in for `tf.train.ClusterSpec`: jobs, and the addresses of their tasks.

    Differs from TensorFlow: there is no protocol buffer of it.
    Ref: https://www.tensorflow.org/api_docs/python/tf/train/ClusterSpec
    """

    def __init__(self, cluster: Any) -> None:
        """Take the addresses.

        Args:
            cluster: Job to a list of addresses, or to a dictionary from index to address; or another ClusterSpec.

        Raises:
            TypeError: If it is none of these.
        """
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.as_dict()
        if not isinstance(cluster, Mapping):
            raise TypeError(f"`cluster` must be a dictionary from jobs to addresses, got {cluster!r}.")
        self._jobs: dict[str, dict[int, str]] = {job: _tasks(job, tasks) for job, tasks in cluster.items()}

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))})"

    @property
    def jobs(self) -> list[str]:
        """The jobs' names."""
        return list(self._jobs)

    def as_dict(self) -> dict[str, Any]:
        """Return each job's addresses: a list, or a dictionary by index where indices are left out."""
        return {
            job: list(_in_order(tasks).values()) if tasks and max(tasks) + 1 == len(tasks) else _in_order(tasks)
            for job, tasks in self._jobs.items()
        }

    def as_cluster_def(self) -> Any:
        """Refuse: there are no protocol buffers here.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("There is no tf.train.ClusterDef. Use `as_dict()`, or give the ClusterSpec itself.")

    def num_tasks(self, job_name: str) -> int:
        """Return how many tasks a job has."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the indices of a job's tasks."""
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return a task's address.

        Raises:
            ValueError: If there is no such job or task.
        """
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}, which has {sorted(tasks)}.")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return a job's addresses in order, with None at indices that are left out.

        Raises:
            ValueError: If there is no such job, or if it is empty.
        """
        tasks = self._job(job_name)
        return [tasks.get(i) for i in range(max(tasks) + 1)]

    def _job(self, name: str) -> dict[int, str]:
        if name not in self._jobs:
            raise ValueError(f"No such job in cluster: {name!r}. There are {self.jobs}.")
        return self._jobs[name]


def _in_order(tasks: dict[int, str]) -> dict[int, str]:
    return dict(sorted(tasks.items()))


def _tasks(job: Any, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, list | tuple):
        tasks = dict(enumerate(tasks))
    if not isinstance(tasks, Mapping):
        raise TypeError(
            f"The tasks of job {job!r} must be a list, or a dictionary from integers to strings, got {tasks!r}."
        )
    wrong = [text for text in (job, *tasks.values()) if not isinstance(text, str | bytes)]
    if wrong:
        raise TypeError(f"Names of jobs and addresses of tasks must be strings, got {wrong[0]!r}.")
    return {int(i): _text(address) for i, address in tasks.items()}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
