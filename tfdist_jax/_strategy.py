"""What every strategy answers, and what follows from the answers."""

import abc
import functools
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from tfdist_jax import _replica
from tfdist_jax._explain import Explanation, explain
from tfdist_jax._global_batch import evaluate_globally, plan_memory, value_and_grad_globally
from tfdist_jax._multiprocess._agreed_program import jit_with_agreement
from tfdist_jax._multiprocess._shared_input import put_shard_rows, shards_of_global_batches, shards_of_local_batches
from tfdist_jax._pipeline import PipelinePlan
from tfdist_jax._program import BEFORE_GRADIENTS, Program, make_program
from tfdist_jax._sharding._collectives import ReduceOp
from tfdist_jax._sharding._input import PaddedBatch, add_mask, num_rows, pad_to_equal, prefetch, put_rows, split_batch
from tfdist_jax._sharding._layout import (
    Layout,
    NotedLayouts,
    StateLeaf,
    find_idle_axes,
    lay_out_shapes,
    tree_paths,
    tree_shardings,
)
from tfdist_jax._sharding._mesh import batch_axes, num_replicas
from tfdist_jax._sharding._placement import local, spans_processes
from tfdist_jax._sharding._prefetch import Prefetched, make_prefetched


class Strategy(abc.ABC):
    """Where the arrays of a training program live and how its steps become one program.

    A strategy answers two questions: over which mesh, and how each leaf of the state is laid out on it. The names of the mesh's axes
    say what they are for: rows of batches are split over `data` and `fsdp`; along others, such as `tensor`, XLA divides what is computed
    with arrays that are laid out over them. Subclasses are final frozen dataclasses that answer and override nothing else; one whose mesh
    has an axis `stage` answers a third, when its stages compute what (`pipeline`).

    After `tfdist_jax.initialize()` the devices are those of all processes, which run the same program: all of them make
    the calls below, in the same order.

    Example:
        >>> import dataclasses, jax, jax.numpy as jnp, tfdist_jax as td
        >>> P = jax.sharding.PartitionSpec
        >>> @dataclasses.dataclass(frozen=True)
        ... class TablesSplit(td.Strategy):
        ...     @property
        ...     def mesh(self):
        ...         return td.make_mesh({"data": -1})
        ...     def state_layout(self, leaf):
        ...         return td.Layout(P("data") if leaf.path.endswith("table") else P())
        >>> state = TablesSplit().init(lambda: {"table": jnp.ones((64, 8)), "head": jnp.ones((8, 64))})
        >>> state["table"].sharding.is_fully_replicated, state["head"].sharding.is_fully_replicated
        (False, True)
    """

    @property
    @abc.abstractmethod
    def mesh(self) -> Mesh:
        """The devices as a named grid."""

    @abc.abstractmethod
    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Return how an array of the state is laid out over the mesh."""

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return those of its rules, if it has any, that match none of the paths of a state; `init` warns of them."""
        return ()

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """The mesh's axes over which rows are split: what collectives over all replicas name, such as BatchNorm's `axis_name`."""
        return batch_axes(self.mesh)

    @property
    def pipeline(self) -> PipelinePlan | None:
        """How losses made of stages go over the mesh's axis `stage`, if it has one."""
        return None

    @functools.cached_property
    def _layouts(self) -> NotedLayouts:
        return NotedLayouts(self.state_layout)

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
            The state, each leaf sharded by `state_layout`.

        Example:
            >>> import jax, jax.numpy as jnp, optax, tfdist_jax as td
            >>> def make_state(key):
            ...     params = {"w": jax.random.normal(key, (1024, 8))}
            ...     return params, optax.adam(0.1).init(params)
            >>> params, opt_state = td.FSDP().init(make_state, jax.random.key(0))
            >>> params["w"].shape, params["w"].sharding.is_fully_replicated
            ((1024, 8), False)
        """
        shapes = jax.eval_shape(make_state, *args)
        shardings, paths = tree_shardings(self._layouts.note, shapes, self.mesh), tree_paths(shapes)
        if unmatched := self.unmatched_rules(paths):
            warnings.warn(
                f"The rules {unmatched} match the end of no path in the state, whose paths are such as {paths[:8]}: what they are meant "
                "for is laid out without them.",
                stacklevel=2,
            )
        if idle := find_idle_axes(self.mesh, shardings, has_stages=self.pipeline is not None):
            warnings.warn(
                f"Over the axes {idle} of the mesh {dict(self.mesh.shape)}, neither rows nor arrays of the state are split: the devices "
                "along them all compute the same. Add rules that name them, or leave them out.",
                stacklevel=2,
            )
        return jit_with_agreement(make_state, self.mesh, out_shardings=shardings)(*args)

    def shardings(self, state: Any) -> Any:
        """Return how each array of a state is laid out: a tree of `NamedSharding`.

        Args:
            state: Pytree of arrays or of their shapes, as `jax.eval_shape` gives them.

        Raises:
            ValueError: If an array does not divide as its layout says.

        Example:
            >>> import jax, tfdist_jax as td
            >>> td.FSDP().shardings({"w": jax.ShapeDtypeStruct((1024, 8), "float32")})["w"].spec == jax.P("data")
            True
        """
        return tree_shardings(self.state_layout, state, self.mesh)

    def put(self, batch: Any, *, mask: str | None = None) -> Any:
        """Lay a host batch out over the replicas, starting the transfer.

        Args:
            batch: Pytree of arrays `[rows, ...]`. With several processes, the same whole batch in each of them, which is not
                checked; each device takes its rows. `prefetch` checks, and takes batches of each process's own.
            mask: Where in the batch, a dict, to put which rows are real, `[rows]` of booleans. There are zeros in place of those
                that are missing, and all replicas have as many.

        Returns:
            The same tree, sharded by rows; where the rows do not divide evenly and there is no mask, a `PaddedBatch`, which
            `value_and_grad` and `evaluate` take as well and compute exactly.

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> td.Mirrored().put({"x": np.zeros((5, 3))}, mask="real")["real"]
            Array([ True,  True,  True,  True,  True, False, False, False], dtype=bool)
        """
        data, sizes = pad_to_equal(batch, self.num_replicas)
        if mask is not None:
            data, sizes = add_mask(data, mask, sizes, max(sizes)), (max(sizes),) * len(sizes)
        rows = put_rows(data, self.mesh)
        return rows if len(set(sizes)) == 1 else PaddedBatch(rows, sizes)

    def prefetch(
        self, batches: Iterable[Any], *, depth: int = 2, own: bool = False, mask: str | None = None
    ) -> Prefetched:
        """Return an iterator over `put(batch)` for every host batch, which are read in a thread and placed ahead of the step.

        Args:
            batches: Pytrees of arrays `[rows, ...]`, with the same rows in all processes; or this process's own.
            depth: How many are read ahead, and how many transfers are on their way, at a time; 0 for none.
            own: Whether the batches are this process's alone, whose rows go to its own devices. A step's batch is then
                what all processes have. They need not have equally many rows or batches: who has none left takes part
                without rows until all are done.
            mask: As in `put`.

        Returns:
            An iterator, which reads no more after `close()`. If the iterator of `batches` has `get_state` and `set_state`, such as
            Grain's, it has them too, about the batch last given out: `Checkpointer.save(..., position=it)` saves that.

        Raises:
            ValueError: If the batches of different processes do not fit together, or if one has none of its own.

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> [len(batch) for batch in td.Mirrored().prefetch([np.zeros((16, 3))] * 2)]
            [16, 16]
        """
        make_shards = shards_of_local_batches if own else shards_of_global_batches
        place = lambda shard: put_shard_rows(shard, self.mesh, mask)
        place_all = lambda source: prefetch(make_shards(source, self.mesh), place, depth=depth)
        if own and spans_processes(self.mesh):
            return make_prefetched(batches, place_all, depth=depth, counts=num_rows)
        return make_prefetched(batches, place_all, depth=depth)

    def fetch(self, tree: Any) -> Any:
        """Return whole host copies of arrays that lie over the mesh, also over devices of other processes.

        Args:
            tree: Pytree of arrays, such as the training state. All processes must ask for it.

        Example:
            >>> import jax, tfdist_jax as td
            >>> td.FSDP().fetch(td.FSDP().init(lambda: {"w": jax.numpy.ones((1024, 8))}))["w"].sum()
            np.float32(8192.0)
        """
        return jax.tree.map(lambda leaf: jax.device_get(local(leaf)), tree)

    def value_and_grad(
        self, loss_fn: Callable[..., Any], *, has_aux: bool = True, accumulate: int = 1
    ) -> Callable[..., Any]:
        """Differentiate a loss over the global batch: what `jax.value_and_grad` gives on one device, or an error.

        The function is traced with its rows and with those of all replicas, which tells of each result whether it is a sum or a mean over
        rows, has an entry for each, or is the same whatever the rows; so it is put together. What is none of these, such as a ratio
        of sums or a maximum, is refused. Where what is computed for a row depends on other rows, as with statistics of a batch, it is
        computed from those of the replica, or of the microbatch, with a warning.

        Args:
            loss_fn: `loss_fn(params, batch, *extra)` giving `(loss, aux)`. It runs once per replica on the replica's rows, under the
                axis names `batch_axes`. The loss is a scalar, or `(sum, weight)`: the sum of what all replicas' rows have is divided by the
                sum of their weights, as for a mean over tokens with a mask. `aux` is any pytree; leaves in `td.Sum`, `td.Mean` or
                `td.Rows` are what these say.
            has_aux: False if `loss_fn` returns the loss alone.
            accumulate: In how many parts each replica computes its rows, one after another, so that what is kept for gradients is that of
                one part. Their gradients are added up, in float32 if they are shorter, and reduced over the replicas once.

        Returns:
            A function of `(params, batch, *extra)` that gives `((loss, aux), grads)`, or `(loss, grads)`. `grads` are laid out like
            `params`. Results for each row are in the order of the batch and sharded by rows, or, if replicas have different numbers
            of rows, whole. `extra` is the same on every replica, but for random keys (of `jax.random.key`): if there are several
            replicas, each has `fold_in(key, replica)`. One device's random numbers come of `td.row_keys`. Where `td.Compressed` keeps
            something from step to step, the function takes it as the keyword `compression`, as `init_compression` makes it, and gives
            the new one as a third: `(loss, aux), grads, memory`.

        Raises:
            ValueError: If `accumulate` is no number of parts.
            ValueError: When called: if a result of the whole batch does not follow from those of its parts; if the function communicates
                between replicas of different numbers of rows; if it draws equal random numbers on all replicas; or if there are no rows.

        Example:
            >>> import jax, numpy as np, tfdist_jax as td
            >>> strategy = td.Mirrored()
            >>> def loss_fn(scale, x):
            ...     errors = (scale * x - 1) ** 2
            ...     return errors.mean(), {"errors": errors, "rows": len(x)}
            >>> x = np.arange(3, dtype=np.float32)
            >>> (loss, aux), grad = strategy.value_and_grad(loss_fn)(jax.numpy.float32(2), strategy.put(x))
            >>> f"{loss:.3f} {grad:.3f}", np.asarray(aux["errors"]), int(aux["rows"])
            ('3.667 4.667', array([1., 1., 9.], dtype=float32), 3)
        """
        if not isinstance(accumulate, int) or accumulate < 1:
            raise ValueError(
                f"`accumulate` is the number of parts that a replica computes, 1 or more, got {accumulate!r}."
            )
        fn = value_and_grad_globally(
            loss_fn,
            self.mesh,
            self._layouts.find,
            has_aux=has_aux,
            accumulate=accumulate,
            pipeline=self.pipeline,
        )

        @functools.wraps(fn)
        def told(*args: Any, **kept: Any) -> Any:
            if tell := BEFORE_GRADIENTS.get():
                tell(self, loss_fn, has_aux, args)
            return fn(*args, **kept)

        return jit_with_agreement(told, self.mesh, name=getattr(loss_fn, "__name__", None))

    def init_compression(self, params: Any, *, resume: Any = None) -> Any:
        """Make what replicas keep of compressed gradients from step to step, for `td.Compressed`: what is still to be sent.

        It is a part of a training's state, to be handed from step to step, saved and restored.

        Args:
            params: The parameters, as `value_and_grad` takes them; shapes are enough.
            resume: What another number of replicas has kept, such as in a checkpoint: what is still to be sent is divided evenly among
                the present ones, so that its sum stays.

        Returns:
            Arrays `[replicas, ...]`, sharded over the replicas, by the paths of parameters: `{"dense/kernel": {"residual": ...}}`. There
            are none where gradients travel in forms without memory.

        Raises:
            ValueError: If `resume` is not of such parameters, or the form is one that the layout of the parameters does not allow.

        Example:
            >>> import jax, tfdist_jax as td
            >>> params = {"kernel": jax.ShapeDtypeStruct((64, 32), "float32")}
            >>> memory = td.Compressed(td.Mirrored(), method=td.TopK()).init_compression(params)
            >>> fewer = td.Compressed(td.Mirrored(tuple(jax.devices()[:2])), method=td.TopK())
            >>> fewer.init_compression(params, resume=memory)["kernel"]["residual"].shape
            (2, 64, 32)
        """
        make, args, shardings = plan_memory(self._layouts.find, params, self.mesh, resume)
        return jit_with_agreement(make, self.mesh, name="init_compression", out_shardings=shardings)(*args)

    def evaluate(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Compute a function over the global batch: what it gives on one device, or an error, or a warning, as `value_and_grad`.

        Args:
            fn: `fn(state, batch, *extra)` giving any pytree, as `aux` of `value_and_grad`: sums, means, entries for each row. Under a
                `td.Pipeline`, each stage of a `td.Staged` computes its layers; any other function has all parameters on each device, and so
                has, with a warning, one whose results do not follow from those of microbatches or that uses layers outside of their stages.

        Returns:
            A function of `(state, batch, *extra)`, compiled.

        Raises:
            ValueError: As `value_and_grad`.

        Example:
            >>> import jax, numpy as np, tfdist_jax as td
            >>> strategy = td.Mirrored()
            >>> squares = strategy.evaluate(lambda scale, x: {"rows": scale * x**2, "count": len(x)})
            >>> results = squares(jax.numpy.float32(2), strategy.put(np.arange(3, dtype=np.float32)))
            >>> np.asarray(results["rows"]), int(results["count"])
            (array([0., 2., 8.], dtype=float32), 3)
        """
        fn_name = getattr(fn, "__name__", None)
        evaluate = evaluate_globally(fn, self.mesh, self.state_layout, self.pipeline)
        return jit_with_agreement(evaluate, self.mesh, name=fn_name)

    def jit(self, step: Callable[..., Any]) -> Program:
        """Compile `step(state, *args) -> (state, out)` to one program that reuses the state's memory.

        The program sees whole (global) arrays: what follows the gradients, such as clipping, the optimizer or an
        average of weights, is written as for one device.

        Example:
            >>> import jax, tfdist_jax as td
            >>> strategy = td.Mirrored()
            >>> step = strategy.jit(lambda count, x: (count + 1, count + x))
            >>> step(strategy.init(lambda: jax.numpy.int32(5)), 10)
            (Array(6, dtype=int32), Array(15, dtype=int32))
        """
        return make_program(step, self.mesh)

    def explain(
        self,
        step: Callable[..., Any],
        state: Any,
        *args: Any,
        seconds: float | None = None,
        peak_flops: float | None = None,
    ) -> Explanation:
        """Compile a step and say what it does: where the state lies, what memory it takes, how devices communicate, what it computes.

        Nothing is run, and the state can be used afterwards. Printed, the result is a report; tests read its fields.

        Args:
            step: What `jit`, `value_and_grad` or `evaluate` has returned, or any function of `jax.jit`.
            state: What the step is called with first: arrays, or `jax.ShapeDtypeStruct`, which are laid out as `init` would if they have
                no sharding.
            args: What else it is called with, such as `put(batch)`: arrays, or `jax.ShapeDtypeStruct` with shardings.
            seconds: How long a step takes, if that has been measured: the report then says how many operations a second that is.
            peak_flops: How many operations a second one device can do. Known for some kinds of devices, in bfloat16.

        Raises:
            TypeError: If the step is not compiled by JAX.
            ValueError: If it runs on other devices than the strategy's.

        Example:
            >>> import jax, numpy as np, tfdist_jax as td
            >>> strategy = td.FSDP(min_size=1)
            >>> compute = strategy.value_and_grad(lambda w, x: (x @ w).mean(), has_aux=False)
            >>> w = jax.ShapeDtypeStruct((1024, 8), "float32")
            >>> found = strategy.explain(compute, w, strategy.put(np.ones((16, 1024), np.float32)))
            >>> found.state[0].layout, found.state[0].bytes_on_device
            ("P('data',)", 4096)
            >>> [(one.kind, one.axes, one.bytes) for one in found.collectives][0]
            ('all-gather', ('data',), 32768)
        """
        state = lay_out_shapes(self.state_layout, state, self.mesh)
        return explain(step, (state, *args), self.mesh, seconds=seconds, peak_flops=peak_flops, pipeline=self.pipeline)

    def split(self, batch: Any) -> Any:
        """Split a host batch's rows, the same in all processes, over the replicas: a `PerReplica` per array, for `run`.

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> [len(rows) for rows in td.Mirrored().split(np.arange(10.0)).values]
            [2, 2, 2, 2, 2, 0, 0, 0]
        """
        return split_batch(batch, self.mesh)

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn` once on each replica, with collectives over the axis names `batch_axes`.

        Args:
            fn: A function of arrays; a pure one, as for `jax.jit`.
            args: Pytrees; `PerReplica` leaves give each replica its own value, others are the same everywhere.

        Returns:
            What `fn` returns, each array as a `PerReplica` with the replicas' results.

        Example:
            >>> import jax, numpy as np, tfdist_jax as td
            >>> strategy = td.Mirrored()
            >>> rows = strategy.split(np.arange(float(strategy.num_replicas)))
            >>> total = strategy.run(lambda x: jax.lax.psum(x.sum(), strategy.batch_axes), rows)
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

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> strategy = td.Mirrored()
            >>> own = strategy.run(lambda x: x.sum(), strategy.split(np.arange(16.0)))
            >>> float(strategy.reduce(td.ReduceOp.SUM, own))
            120.0
        """
        return _replica.reduce(op, value, axis=axis)

    def gather(self, value: Any, *, axis: int = 0) -> Any:
        """Join the replicas' values along `axis`, in replica order; every process gets them.

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> strategy = td.Mirrored()
            >>> strategy.gather(strategy.split(np.arange(10))).shape
            (10,)
        """
        return _replica.gather(value, axis=axis)

    def local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the values of this process's replicas.

        Example:
            >>> import numpy as np, tfdist_jax as td
            >>> len(td.Mirrored().local_results(td.Mirrored().split(np.arange(16.0))))
            8
        """
        return _replica.local_results(value, self.mesh)
