"""What every strategy answers, and what follows from the answers."""

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax import _replica
from tfdist_jax._gradients import global_value_and_grad
from tfdist_jax._multiprocess._agreed_program import jit_with_agreement
from tfdist_jax._multiprocess._shared_input import put_shard_rows, shards_of_global_batches, shards_of_local_batches
from tfdist_jax._program import Program, make_program
from tfdist_jax._sharding._collectives import ReduceOp
from tfdist_jax._sharding._input import PaddedBatch, prefetch, put_padded
from tfdist_jax._sharding._layout import tree_specs
from tfdist_jax._sharding._mesh import num_replicas
from tfdist_jax._sharding._placement import local


class Strategy(abc.ABC):
    """Where the arrays of a training program live and how its steps become one program.

    A strategy answers two questions: over which mesh, and how each leaf of the state is laid out on it. Batches
    are split over the mesh's data axis. Subclasses are final frozen dataclasses that answer and override nothing.

    After `tfdist_jax.initialize()` the devices are those of all processes, which run the same program: all of them make
    the calls below, in the same order.
    """

    @property
    @abc.abstractmethod
    def mesh(self) -> Mesh:
        """The devices as a named grid; its `DATA` axis has one index per replica."""

    @abc.abstractmethod
    def state_spec(self, path: str, leaf: jax.ShapeDtypeStruct) -> PartitionSpec:
        """Return how the state leaf at `path` (written as `jax.tree_util.keystr`) is laid out over the mesh."""

    @property
    def num_replicas(self) -> int:
        """Into how many parts a batch is split."""
        return num_replicas(self.mesh)

    def init(self, make_state: Callable[..., Any], *args: Any) -> Any:
        """Make the training state, each leaf laid out at birth, never whole on one device.

        Args:
            make_state: Function of `args` that returns a pytree of arrays; traced, not called eagerly.
            args: Arrays, such as a random key.

        Returns:
            The state, each leaf sharded by `state_spec`.
        """
        specs = tree_specs(self.state_spec, jax.eval_shape(make_state, *args))
        return jit_with_agreement(make_state, self.mesh, out_shardings=self._shardings(specs))(*args)

    def put(self, batch: Any) -> Any:
        """Lay a host batch out over the replicas, starting the transfer.

        Args:
            batch: Pytree of arrays `[rows, ...]`. With several processes, the same whole batch in each of them, which is not
                checked; each device takes its rows. `prefetch` checks, and takes batches of each process's own.

        Returns:
            The same tree sharded `P(DATA)`; where the rows do not divide evenly, a `PaddedBatch`, which
            `value_and_grad` takes as well and computes exactly.
        """
        data, sizes = put_padded(batch, self.mesh)
        return data if len(set(sizes)) == 1 else PaddedBatch(data, sizes)

    def prefetch(self, batches: Iterable[Any], *, depth: int = 2, own: bool = False) -> Iterator[Any]:
        """Yield `put(batch)` for every host batch, with `depth` transfers ahead of the step.

        Args:
            batches: Pytrees of arrays `[rows, ...]`, with the same rows in all processes; or this process's own.
            depth: How many transfers are on their way at a time.
            own: Whether the batches are this process's alone, whose rows go to its own devices. A step's batch is then
                what all processes have. They need not have equally many rows or batches: who has none left takes part
                without rows until all are done.

        Raises:
            ValueError: If the batches of different processes do not fit together, or if one has none of its own.

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> [len(batch) for batch in td.Mirrored().prefetch([np.zeros((16, 3))] * 2)]
            [16, 16]
        """
        shards = (shards_of_local_batches if own else shards_of_global_batches)(batches, self.mesh)
        return prefetch(shards, lambda shard: put_shard_rows(shard, self.mesh), depth=depth)

    def fetch(self, tree: Any) -> Any:
        """Return whole host copies of arrays that lie over the mesh, also over devices of other processes.

        Args:
            tree: Pytree of arrays, such as the training state. All processes must ask for it.

        Example:
            >>> import tfdist_jax as td
            >>> td.FSDP().fetch(td.FSDP().init(lambda: {"w": jax.numpy.ones((1024, 8))}))["w"].sum()
            np.float32(8192.0)
        """
        return jax.tree.map(lambda leaf: jax.device_get(local(leaf)), tree)

    def value_and_grad(self, loss_fn: Callable[..., Any], *, has_aux: bool = True) -> Callable[..., Any]:
        """Differentiate the mean loss over the global batch, as `jax.value_and_grad` would on one device.

        Args:
            loss_fn: `loss_fn(params, batch, *extra)` giving `(loss, aux)`: the mean over the rows of `batch`,
                and a pytree whose floating leaves are averaged over rows too. It runs once per replica, under
                the axis name `DATA`.
            has_aux: False if `loss_fn` returns the loss alone.

        Returns:
            A function of `(params, batch, *extra)` that gives `((loss, aux), grads)`, or `(loss, grads)`; `grads`
            are laid out like `params`; `extra` is the same on every replica.
        """
        return global_value_and_grad(loss_fn, self.mesh, self.state_spec, has_aux=has_aux)

    def jit(self, step: Callable[..., Any]) -> Program:
        """Compile `step(state, *args) -> (state, out)` to one program that reuses the state's memory.

        The program sees whole (global) arrays: what follows the gradients, such as clipping, the optimizer or an
        average of weights, is written as for one device.
        """
        return make_program(step, self.mesh)

    def split(self, batch: Any) -> Any:
        """Split a host batch's rows, the same in all processes, over the replicas: a `PerReplica` per array, for `run`."""
        return _replica.split_batch(batch, self.mesh)

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn` once on each replica, with collectives over the axis name `DATA`.

        Args:
            fn: A function of arrays; a pure one, as for `jax.jit`.
            args: Pytrees; `PerReplica` leaves give each replica its own value, others are the same everywhere.

        Returns:
            What `fn` returns, each array as a `PerReplica` with the replicas' results.

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> strategy = td.Mirrored()
            >>> rows = strategy.split(np.arange(float(strategy.num_replicas)))
            >>> total = strategy.run(lambda x: jax.lax.psum(x.sum(), td.DATA), rows)
            >>> bool(total.values[0] == np.arange(strategy.num_replicas).sum())
            True
        """
        return _replica.run_on_replicas(fn, self.mesh, args)

    def reduce(self, op: ReduceOp, value: Any, *, axis: int | None = None) -> Any:
        """Combine the replicas' values into one, which every process gets.

        Args:
            op: Sum or mean over the replicas and, with `axis`, over that axis of their values too, all elements alike.
            value: Pytree with `PerReplica` leaves. Other leaves are the same everywhere: a mean keeps them.
            axis: The axis, if any.

        Raises:
            ValueError: If values that are not per replica are to be summed.
        """
        return _replica.reduce(op, value, axis=axis)

    def gather(self, value: Any, *, axis: int = 0) -> Any:
        """Join the replicas' values along `axis`, in replica order; every process gets them."""
        return _replica.gather(value, axis=axis)

    def local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the values of this process's replicas."""
        return _replica.local_results(value, self.mesh)

    def _shardings(self, specs: Any) -> Any:
        is_spec = lambda leaf: isinstance(leaf, PartitionSpec)
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs, is_leaf=is_spec)
