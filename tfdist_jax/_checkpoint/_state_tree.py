"""A training's state as named arrays, and back into the tree that somebody asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax._sharding._placement import keeping_64_bits
from tfdist_jax._strategy import Strategy

if TYPE_CHECKING:
    from etils import epath

_KEYS = "random keys"
_NUMBERS = (bool, int, float, complex)


def arrays_of(state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the leaves of a state by their paths, as arrays that can be saved, and what else is to be known of them."""
    leaves = _named(state)
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in leaves.items() if _is_random_key(leaf)}
    arrays = {name: jax.random.key_data(leaf) if name in keys else leaf for name, leaf in leaves.items()}
    return {name: _array(name, leaf) for name, leaf in arrays.items()}, {_KEYS: keys}


def _array(name: str, leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return leaf
    host = np.asarray(leaf)
    if (host.dtype.kind in "OSUMmV" and not isinstance(leaf, np.ndarray | np.generic)) or host.dtype.hasobject:
        raise TypeError(
            f"The leaf {name} of the state is a {type(leaf).__name__}. A state is made of arrays and numbers; what JSON has can "
            "be saved as the `position`."
        )
    return host


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _is_random_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def read_tree(path: "Path | epath.Path", like: Any, strategy: Strategy | None) -> Any:
    """Return what was saved in a folder, in the tree and layout of `like`; by name, on the host, if it is None."""
    types, about = _checkpoint.read_about(path)
    if like is None:
        return _checkpoint.load_arrays(path)
    leaves = _named(like)
    missing = leaves.keys() - types.keys()
    if missing:
        raise ValueError(
            f"`like` has leaves that were not saved in {path}: {_listed(missing)}. What was saved and is not in `like`: "
            f"{_listed(types.keys() - leaves.keys())}."
        )
    for name, leaf in leaves.items():
        _check(name, leaf, *types[name], about[_KEYS].get(name))
    wanted = _named(strategy.shardings(like)) if strategy is not None else {}
    shardings = {name: _sharding_of(leaf, wanted.get(name)) for name, leaf in leaves.items()}
    arrays = _checkpoint.load_arrays(path, leaves, shardings.get)
    read = {name: _like(leaf, arrays[name], about[_KEYS].get(name)) for name, leaf in leaves.items()}
    return jax.tree.unflatten(jax.tree.structure(like), [read[name] for name in leaves])


def _listed(names: Any, most: int = 5) -> str:
    shown = sorted(names)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "") or "nothing"


def _check(name: str, leaf: Any, shape: tuple[int, ...], dtype: np.dtype, key: str | None) -> None:
    """Require that a leaf has the saved shape and type, if it says any."""
    if not hasattr(leaf, "shape"):
        return
    wanted = f"a random key {leaf.dtype}" if _is_random_key(leaf) else f"{leaf.dtype}{list(leaf.shape)}"
    saved_shape = shape if key is None else tuple(jax.random.wrap_key_data(jnp.zeros(shape, dtype), impl=key).shape)
    saved = f"{dtype}{list(shape)}" if key is None else f"a random key key<{key}>"
    if (
        _is_random_key(leaf) != (key is not None)
        or tuple(leaf.shape) != saved_shape
        or (key is None and leaf.dtype != dtype)
    ):
        raise ValueError(
            f"`like` has {wanted} at {name}, but {saved} was saved there. Ask for what was saved, and change it afterwards."
        )


def _sharding_of(leaf: Any, wanted: Sharding | None) -> Sharding | None:
    if isinstance(leaf, Sharding):
        return leaf
    if wanted is not None and hasattr(leaf, "shape"):
        return wanted
    if isinstance(leaf, jax.Array) and not leaf.committed:
        return None
    return getattr(leaf, "sharding", None)


def _like(leaf: Any, array: Any, key: str | None) -> Any:
    if isinstance(leaf, jax.Array) and not isinstance(array, jax.Array):
        with keeping_64_bits(leaf):
            array = jnp.asarray(array)
    if key is not None:
        return jax.random.wrap_key_data(array, impl=key)
    return type(leaf)(array.item()) if isinstance(leaf, _NUMBERS) else array
