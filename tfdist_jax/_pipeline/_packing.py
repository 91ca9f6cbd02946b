"""Trees of different shapes in the same few flat arrays, so that one program can hand on all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._keys import is_key


@final
class Packing:
    """Flat arrays, one of each type, that have room for any of some trees.

    Attributes:
        shapes: Shapes of the flat arrays, by the names of their types.
    """

    def __init__(self, trees: Sequence[Any]) -> None:
        """Find out how much room there must be.

        Args:
            trees: Pytrees of shapes.

        Raises:
            TypeError: If there are random keys in them.
        """
        self._trees = [(jax.tree.structure(tree), jax.tree.leaves(tree)) for tree in trees]
        sizes: dict[str, int] = {}
        for _, leaves in self._trees:
            if any(is_key(leaf) for leaf in leaves):
                raise TypeError(
                    "Functions of a list hand on a random key, for which there is no room among numbers. Pass it as an argument beside the "
                    "batch, or keys of rows as a part of the batch."
                )
            for dtype in {leaf.dtype for leaf in leaves}:
                size = sum(leaf.size for leaf in leaves if leaf.dtype == dtype)
                sizes[str(dtype)] = max(sizes.get(str(dtype), 0), size)
        self.shapes = {name: jax.ShapeDtypeStruct((size,), name) for name, size in sorted(sizes.items())}

    def pack(self, tree: Any) -> dict[str, jax.Array]:
        """Return the flat arrays with one of the trees, filled up with zeros."""
        leaves = jax.tree.leaves(tree)

        def fill(shape: Any) -> jax.Array:
            parts = [jnp.ravel(leaf) for leaf in leaves if leaf.dtype == shape.dtype]
            missing = shape.size - sum(part.size for part in parts)
            return (
                jnp.concatenate([*parts, jnp.zeros(missing, shape.dtype)]) if missing or len(parts) != 1 else parts[0]
            )

        return {name: fill(shape) for name, shape in self.shapes.items()}

    def unpack(self, arrays: Mapping[str, jax.Array], index: int) -> Any:
        """Return one of the trees from the flat arrays."""
        tree, leaves = self._trees[index]
        starts = dict.fromkeys(arrays, 0)
        found = []
        for leaf in leaves:
            name = str(leaf.dtype)
            found.append(arrays[name][starts[name] : starts[name] + leaf.size].reshape(leaf.shape))
            starts[name] += leaf.size
        return tree.unflatten(found)
