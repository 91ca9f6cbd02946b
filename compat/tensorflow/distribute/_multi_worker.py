"""`tf.distribute.MultiWorkerMirroredStrategy`: one program over the devices of several processes."""

import functools
from typing import Any, final

import jax
import jax.numpy as jnp

import tfdist_jax
from tfdist_jax._cluster import allgather_object, detect_cluster, limit_waits
from tfdist_jax._multiprocess._broadcast import broadcast_from_first
from tfdist_jax._stateful._state import Cell
from tfdist_jax._stateful._storage import MirroredStorage, Storage
from tfdist_jax.compat.tensorflow._platform._devices import name_processes
from tfdist_jax.compat.tensorflow.distribute._configured_resolvers import TFConfigClusterResolver, cluster_of
from tfdist_jax.compat.tensorflow.distribute._options import (
    CommunicationImplementation,
    CommunicationOptions,
    require_instance,
)
from tfdist_jax.compat.tensorflow.distribute._resolver_base import ClusterResolver
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.random._random_state import get_streams, set_streams


class MultiWorkerMirroredStrategy(Strategy):
    """Drop-in for `tf.distribute.MultiWorkerMirroredStrategy`: a copy of the variables on each device of every worker.

    Make it before anything that starts JAX, and in every process. Variables begin with the first worker's values.
    Without a cluster, and in an evaluator, it trains on this process's devices alone.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy
    """

    has_workers = True

    def __init__(
        self, cluster_resolver: ClusterResolver | None = None, communication_options: CommunicationOptions | None = None
    ) -> None:
        """Connect the workers.

        Args:
            cluster_resolver: Says which processes there are. If None, what `tfdist-jax launch`, TF_CONFIG or the scheduler
                (Slurm, Open MPI, Kubernetes, Cloud TPU) has set.
            communication_options: `bytes_per_pack` says how much is reduced together, `compression` in which form gradients
                travel; who carries it is XLA's choice.
                `timeout_seconds` limits what this process waits for others, in whatever it does; of several strategies the
                smallest one counts. After that all workers end, with exit code 75 and a message that names who was waited for,
                and where. Choose it longer than the longest step, and than what one worker does alone, such as saving;
                compiling does not count. One process alone waits for nobody.

        Raises:
            ValueError: If an argument is of another type.
            RuntimeError: If JAX has already started.
            tfdist_jax.MissingTasksError: If workers have not arrived in time.
        """
        require_instance(ClusterResolver, "cluster_resolver", cluster_resolver)
        require_instance(CommunicationOptions, "communication_options", communication_options)
        given = None if cluster_resolver is None else cluster_of(cluster_resolver)
        cluster = tfdist_jax.initialize(given or detect_cluster())
        alone = cluster is None or cluster.num_processes == 1
        options = communication_options or CommunicationOptions()
        devices = tuple(jax.local_devices() if alone else jax.devices())
        super().__init__(tfdist_jax.Mirrored(devices), communication_options=options)
        self._cluster_resolver = cluster_resolver or TFConfigClusterResolver()
        self.is_first = jax.process_index() == 0
        name_processes(() if cluster is None else (cluster.task,) if alone else cluster.training)
        limit_waits(options.limit_s, "`timeout_seconds` of the strategy's `CommunicationOptions`")
        self.draw_alike()

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """Says which processes there are, and which this is: `task_type`, `task_id`."""
        return self._cluster_resolver

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept that have the same value for all replicas: they begin with the first worker's."""
        return _FirstWorkersStorage(self.native.mesh)

    def all_agree(self, here: bool) -> bool:
        """Return whether something holds in all workers; each must ask."""
        return all(allgather_object("whether a step needs the values of tensors", here))

    def draw_alike(self) -> None:
        """Let all workers draw the random numbers that the first one would."""
        if jax.process_count() > 1:
            set_streams(allgather_object("random numbers", get_streams())[0])


@final
class _FirstWorkersStorage(MirroredStorage):
    """Keeps a copy on each device; cells begin with the first worker's values."""

    def place(self, cell: Cell, value: jax.Array) -> None:
        self.adopt(cell, broadcast_from_first(jnp.copy(value), self.mesh))


@final
class _EachIsOne(type):
    """The metaclass of a second name for a strategy: each of the strategies is an instance of it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, MultiWorkerMirroredStrategy)


@final
class ExperimentalMultiWorkerMirroredStrategy(MultiWorkerMirroredStrategy, metaclass=_EachIsOne):
    """`MultiWorkerMirroredStrategy`, with the arguments of its time as an experiment.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/MultiWorkerMirroredStrategy
    """

    def __init__(
        self,
        communication: Any = CommunicationImplementation.AUTO,
        cluster_resolver: ClusterResolver | None = None,
    ) -> None:
        """Connect the workers; `communication` is accepted: who carries what is reduced is XLA's choice."""
        super().__init__(cluster_resolver, CommunicationOptions(implementation=communication))


ExperimentalMultiWorkerMirroredStrategy.__name__ = MultiWorkerMirroredStrategy.__name__
