"""Pytrees whose arrays are on servers, and programs that use them."""

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._coordinator import tracing_alone
from tfdist_jax._internals import default_device
from tfdist_jax._parameter_server._engine import Engine
from tfdist_jax._parameter_server._gradients import join_frozen, split_frozen
from tfdist_jax._stateful._served_program import CellProgram, make_program
from tfdist_jax._stateful._served_storage import bring
from tfdist_jax._stateful._state import CELLS, read, store_all, write
from tfdist_jax._stateful._storage import Storage


@final
class ServedArray:
    """A cell on a server, or of which each worker has a copy.

    Attributes:
        path: Where it is in its tree.
        shape: Its shape, which stays.
        dtype: Its type, which stays.
    """

    trainable = False

    def __init__(self, path: str, array: jax.Array, storage: Storage) -> None:
        """Bring an array to a server."""
        self.path, self.shape, self.dtype = path, array.shape, array.dtype
        self.stored: Any = None
        self.storage = storage
        storage.place(self, array)


def leaves_like(name: str, tree: Any, like: Any) -> list[Any]:
    """Return the arrays of a tree that has the structure of another one, and its shapes and types.

    Raises:
        ValueError: If it has not.
    """
    leaves, structure = jax.tree.flatten(tree)
    wanted, of_like = jax.tree_util.tree_flatten_with_path(like)
    if structure != of_like:
        raise ValueError(
            f"`{name}` has the structure {of_like}, and must keep it, but got {structure}. Take the same parameters, optimizers and "
            "number of workers, and only optimizers whose state keeps its structure."
        )
    for (path, old), leaf in zip(wanted, leaves, strict=True):
        shape, dtype = jnp.shape(leaf), getattr(leaf, "dtype", None) or jnp.result_type(leaf)
        if (shape, dtype) != (old.shape, old.dtype):
            raise ValueError(
                f"`{name}{jax.tree_util.keystr(path)}` has the type {old.dtype}{list(old.shape)}, and must keep it, but got "
                f"{dtype}{list(shape)}. Convert it."
            )
    return leaves


@final
class ServedTree:
    """A pytree of arrays on servers, or of which each worker has a copy.

    Attributes:
        cells: Its arrays.
    """

    def __init__(self, name: str, tree: Any, choose: Callable[[str, jax.Array], Storage]) -> None:
        """Bring arrays to servers, each to the one that `choose` names for its path in the tree."""
        pairs, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._name = name
        named = [(jax.tree_util.keystr(path), jnp.asarray(leaf)) for path, leaf in pairs]
        self.cells = [ServedArray(path, array, choose(path, array)) for path, array in named]

    def read(self) -> Any:
        """Return the arrays, in a program or where no other thread changes them."""
        return self._structure.unflatten(map(read, self.cells))

    def write(self, tree: Any) -> None:
        """Change the arrays, likewise.

        Raises:
            ValueError: If the new ones have other shapes or types, or the tree another structure.
        """
        for cell, array in zip(self.cells, self.check(tree), strict=True):
            write(cell, array)

    def check(self, tree: Any) -> list[Any]:
        """Return the arrays of a tree that could be this one's.

        Raises:
            ValueError: If it could not.
        """
        return leaves_like(self._name, tree, self.with_arrays(self.cells))

    def with_arrays(self, arrays: Sequence[Any]) -> Any:
        """Return the tree of other arrays."""
        return self._structure.unflatten(arrays)


def fetch(*trees: ServedTree) -> list[Any]:
    """Return the arrays of some trees, all as of one moment between updates; others may hold them, too."""
    with CELLS:
        held = [(cell, cell.stored) for tree in trees for cell in tree.cells]
    arrays = iter([cell.storage.load(stored) for cell, stored in held])
    return [tree.with_arrays(list(itertools.islice(arrays, len(tree.cells)))) for tree in trees]


def store_trees(*changes: tuple[ServedTree, Any]) -> None:
    """Let servers hold other arrays, all at once.

    Raises:
        ValueError: If something is not like what it replaces; then nothing is changed.
    """
    checked = [(tree.cells, tree.check(new)) for tree, new in changes]
    store_all([pair for cells, leaves in checked for pair in zip(cells, leaves, strict=True)])


def copy_arrays(tree: Any) -> Any:
    """Return copies, which may be given away: on the device where this thread computes."""
    return jax.tree.map(lambda leaf: bring(jnp.array(leaf), default_device()), tree)


@final
class ServedParams:
    """Parameters and the state of what optimizes them.

    Attributes:
        trained: The parameters that have gradients.
        frozen: The others.
        opt_state: The state of the optimizer.
    """

    def __init__(self, params: Any, make_opt_state: Callable[[Any], Any], engine: Engine) -> None:
        """Bring parameters to the servers, in turn; what an optimizer keeps of one is where that is.

        Args:
            params: Pytree of arrays.
            make_opt_state: Makes the optimizer's state of the parameters that have gradients.
            engine: Has the servers.

        Raises:
            ValueError: If no parameter has a gradient.
        """
        turns = itertools.cycle(engine.storages)
        trained, frozen = split_frozen(jax.tree.map(jnp.asarray, params))
        if not jax.tree.leaves(trained):
            raise ValueError(
                "No parameter has a gradient: all are of types that have none, or there are none. Give parameters of a floating type."
            )
        choose = lambda path, array: next(turns)
        self.trained, self.frozen = ServedTree("params", trained, choose), ServedTree("params", frozen, choose)

        def choose_like(path: str, array: jax.Array) -> Any:
            alike = [cell for cell in self.trained.cells if path.endswith(cell.path) and cell.shape == array.shape]
            longest = max(alike, key=lambda cell: len(cell.path), default=None)
            return engine.storages[0] if longest is None else longest.storage

        self.opt_state = ServedTree("opt_state", jax.jit(make_opt_state)(trained), choose_like)

    @property
    def params(self) -> Any:
        """A copy of the parameters."""
        return join_frozen(*copy_arrays(fetch(self.trained, self.frozen)))

    @property
    def state(self) -> dict[str, Any]:
        """A copy of everything."""
        trained, frozen, opt_state = copy_arrays(fetch(self.trained, self.frozen, self.opt_state))
        return {"params": join_frozen(trained, frozen), "opt_state": opt_state}

    def load(self, state: Any) -> None:
        """Let the servers hold another state, as `state` gives one.

        Raises:
            ValueError: If it is not like the present one.
        """
        cells = [tree.with_arrays(tree.cells) for tree in (self.trained, self.frozen)]
        # As they are given: copies have types of JAX.
        leaves_like("params", state["params"], join_frozen(*cells))
        self.opt_state.check(state["opt_state"])
        params, opt_state = copy_arrays((state["params"], state["opt_state"]))
        trained, frozen = split_frozen(params)
        store_trees((self.trained, trained), (self.frozen, frozen), (self.opt_state, opt_state))


def _as_array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)


def flatten_batch(batch: Any) -> tuple[Any, Any, list[Any]]:
    """Return the kind of a batch, for each of which programs are made, its structure and its arrays."""
    leaves, structure = jax.tree.flatten(batch)
    arrays = list(map(_as_array, leaves))
    kind = structure, tuple((x.shape, x.dtype, getattr(x, "weak_type", False)) for x in arrays)
    return kind, structure, arrays


@final
class BatchProgram:
    """A function of a batch that uses arrays on servers: a program for each kind of batch, made when the first one comes."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        """Run `fn`."""
        self._fn = fn
        self._programs: dict[Any, CellProgram] = {}
        self._making = threading.RLock()

    def __call__(self, batch: Any) -> Any:
        """Run the function on the worker that this thread stands for."""
        kind, structure, arrays = flatten_batch(batch)
        program = self._programs.get(kind) or self._make(kind, structure, arrays)
        return program(arrays)

    def _make(self, kind: Any, structure: Any, arrays: Sequence[Any]) -> CellProgram:
        with tracing_alone(), self._making:
            if kind not in self._programs:
                self._programs[kind] = make_program(lambda *arrays: self._fn(structure.unflatten(arrays)), arrays)
        return self._programs[kind]
