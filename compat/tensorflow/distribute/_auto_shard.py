"""How a dataset is shared out to the processes of a cluster, as its options say."""

from collections.abc import Sequence
from typing import Any

import jax

from tfdist_jax.compat.tensorflow._platform._errors import NotFoundError
from tfdist_jax.compat.tensorflow.data._options import AutoShardPolicy
from tfdist_jax.compat.tensorflow.data._planned import Files
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard


def auto_sharded(dataset: Any, processes: Sequence[int]) -> tuple[Any, bool]:
    """Return what this process is to read of `dataset`, and whether that is its alone.

    AutoShardPolicy.FILE gives each process its files, HINT fills in `dataset.shard(SHARD_HINT, SHARD_HINT)`, and OFF leaves
    it to the processes to have different data. With DATA all read the same and take their rows of each batch. AUTO is FILE
    where the dataset reads files itself, at least one for each process, and DATA otherwise.

    Differs from TensorFlow: files whose names come from `Dataset.list_files` can be shared out whatever reads them; where
    there are too few files, AUTO is DATA.
    Ref: https://www.tensorflow.org/tutorials/distribute/input#sharding

    Args:
        dataset: Any dataset.
        processes: The numbers of the processes.

    Raises:
        NotFoundError: If the dataset is to be shared out by files, and some of its elements are made of none.
    """
    policy = _policy(dataset, len(processes))
    if len(processes) == 1 or policy in (AutoShardPolicy.DATA, AutoShardPolicy.OFF):
        return dataset, len(processes) > 1 and policy is AutoShardPolicy.OFF
    if policy is AutoShardPolicy.FILE and _files(dataset) is None:
        raise NotFoundError(
            None,
            None,
            f"Found an unshardable source dataset: {dataset!r} is not made of files alone. Let it begin with "
            "`tf.data.Dataset.list_files`, or use AutoShardPolicy.DATA.",
        )
    by = "files" if policy is AutoShardPolicy.FILE else "hint"
    shared = getattr(dataset, "shared", lambda share: dataset)
    return shared(DataShard(by, len(processes), processes.index(jax.process_index()))), True


def _policy(dataset: Any, num_processes: int) -> AutoShardPolicy:
    options = dataset.options() if hasattr(dataset, "options") else None
    distribute = getattr(options, "experimental_distribute", None)
    policy = AutoShardPolicy(getattr(distribute, "auto_shard_policy", None) or AutoShardPolicy.AUTO)
    if policy is not AutoShardPolicy.AUTO:
        return policy
    files = _files(dataset)
    by_files = files is not None and files.are_read and files.count >= num_processes
    return AutoShardPolicy.FILE if by_files else AutoShardPolicy.DATA


def _files(dataset: Any) -> Files | None:
    return getattr(dataset, "files", None)
