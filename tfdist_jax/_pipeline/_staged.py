"""Losses that are made of stages."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._keys import fold_keys
from tfdist_jax._sharding._layout import leaf_paths


@final
@dataclasses.dataclass(frozen=True)
class Staged:
    """A loss of layers, which a pipeline divides over devices.

    It is a function `(params, batch, *extra)` as any other loss, and computes the same under every strategy: what is before the layers,
    the layers one after another, and what is behind them. `td.Pipeline` gives each device some of the layers.

    Random keys among `extra` are folded with a number, so that `first`, each layer and `last` have keys of their own.

    Attributes:
        first: `first(params, batch, *extra)` gives what the first layer takes: a pytree of arrays, such as embeddings `[rows, ...]`.
        layer: `layer(layer_params, x, batch, *extra)` gives what the next one takes, of the same shapes and types. If one of `extra` has
            something at `stack` as well, such as statistics, a layer gets its own. Layers that are not alike are a list of functions
            `(params, x, batch, *extra)`, which take all parameters, use what they need, and give each other arrays of any shapes.
        last: `last(params, x, batch, *extra)` gives what a loss function returns: the loss, or `(sum, weight)`, and `aux` behind it.
        stack: The path in `params` of the layers' parameters, stacked along their first dimension: arrays `[layers, ...]`, as
            `nnx.vmap`, `nnx.scan` and `linen.scan` make them. `first` and `last` may use all others, also the same ones. It means nothing
            for a list.
        layer_aux: Whether a layer returns a pair: what the next one takes, and something beside it, such as statistics of its rows. `last`
            then returns `(loss, aux)`, and the whole `(loss, (aux, of_layers))`, of all layers, stacked along the first dimension.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, tfdist_jax as td
        >>> loss_fn = td.Staged(
        ...     first=lambda params, x: x @ params["inner"],
        ...     layer=lambda w, x, batch: x + jnp.tanh(x @ w),
        ...     last=lambda params, x, batch: ((x @ params["inner"].T - batch) ** 2).mean(),
        ... )
        >>> normal = lambda seed, *shape: 0.1 * jax.random.normal(jax.random.key(seed), shape)
        >>> make = lambda: {"inner": normal(0, 8, 16), "blocks": normal(1, 12, 16, 16)}
        >>> batch = np.ones((16, 8), np.float32)
        >>> found = []
        >>> for strategy in td.SingleDevice(), td.Pipeline(stages=4, microbatches=8):
        ...     compute = strategy.value_and_grad(loss_fn, has_aux=False)
        ...     found.append(float(compute(strategy.init(make), strategy.put(batch))[0]))
        >>> bool(np.allclose(*found))
        True
    """

    first: Callable[..., Any]
    layer: Callable[..., Any] | Sequence[Callable[..., Any]]
    last: Callable[..., Any]
    stack: str = "blocks"
    layer_aux: bool = False

    def __post_init__(self) -> None:
        """Keep a list of layers as it is now."""
        if isinstance(self.layer, Sequence):
            object.__setattr__(self, "layer", tuple(self.layer))
        layers = self.layer if isinstance(self.layer, tuple) else (self.layer,)
        for name, fn in (("first", self.first), ("last", self.last), *(("layer", fn) for fn in layers)):
            if not callable(fn):
                raise TypeError(f"`{name}` of td.Staged is to be a function, got {fn!r}.")
        if self.is_listed and self.layer_aux:
            raise ValueError(
                "layer_aux=True is for one function of all layers. Let a list of them hand on what `last` is to return, as a part of `x`."
            )

    @property
    def is_listed(self) -> bool:
        """Whether layers are a list of functions."""
        return isinstance(self.layer, tuple)

    def __call__(self, params: Any, batch: Any, *extra: Any) -> Any:
        """Compute the loss of whole parameters, one layer after another."""
        if self.is_listed:
            x, count = (), self.count_functions()
            for number in range(count):
                x = self.apply_function(number, params, x, batch, extra)
            return self.last(params, x, batch, *fold_keys(extra, count))
        layers, own = self.layers(params), self.own_extra(extra)
        x = jax.tree.map(jnp.asarray, self.first(params, batch, *fold_keys(extra, 0)))

        def turn(x: Any, entry: Any) -> tuple[Any, Any]:
            number, layer, own = entry
            return self.apply_layer(layer, x, batch, extra, own, number)

        count = self.count_layers(params)
        x, of_layers = jax.lax.scan(turn, x, (jnp.arange(count), layers, own))
        returned = self.last(params, x, batch, *fold_keys(extra, count + 1))
        return self.join_aux(returned, of_layers) if self.layer_aux else returned

    def join_aux(self, returned: Any, of_layers: Any) -> tuple[Any, Any]:
        """Return `(loss, (aux, of_layers))`.

        Raises:
            TypeError: If `last` has returned no pair.
        """
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(
                f"With layer_aux=True, `last` of td.Staged returns `(loss, aux)`, such as `(loss, {{}})`, but returned "
                f"{type(returned).__name__}."
            )
        loss, aux = returned
        return loss, (aux, of_layers)

    def apply_layer(  # noqa: PLR0913
        self, layer: Any, x: Any, batch: Any, extra: Any, own: Any, number: Any
    ) -> tuple[Any, Any]:
        """Return what a layer gives to the next one, and what beside it.

        Args:
            layer: Its parameters.
            x: What it takes.
            batch: The rows.
            extra: Other arguments.
            own: What it has of those that are stacked, None of others.
            number: Which of all layers it is.

        Raises:
            TypeError: If it gives nothing beside it, but should.
            ValueError: If the next layer could not take it.
        """
        given = [whole if part is None else part for whole, part in zip(fold_keys(extra, number + 1), own, strict=True)]
        returned = self.layer(layer, x, batch, *given)  # pyright: ignore[reportCallIssue]
        if self.layer_aux and (not isinstance(returned, tuple) or len(returned) != 2):
            raise TypeError(
                f"With layer_aux=True, a layer of td.Staged returns what the next one takes and something beside it, but returned "
                f"{type(returned).__name__}."
            )
        y, aux = returned if self.layer_aux else (returned, ())
        if _shapes(y) != _shapes(x):
            raise ValueError(
                f"A layer of td.Staged gives what the next one takes, but was given {_describe(x)} and returned {_describe(y)}. What "
                "changes shapes belongs into `first` or `last`; types change by promotion, such as of bfloat16 with float32 parameters."
            )
        return y, jax.tree.map(jnp.asarray, aux)

    def count_functions(self) -> int:
        """Return how many functions there are before `last`, if layers are a list."""
        return 1 + len(self._listed)

    def apply_function(self, number: int, params: Any, x: Any, batch: Any, extra: Any) -> Any:
        """Return what one of a list of functions gives, of which `first` has the number 0 and takes nothing."""
        extra = fold_keys(extra, number)
        return self._listed[number - 1](params, x, batch, *extra) if number else self.first(params, batch, *extra)

    @property
    def _listed(self) -> tuple[Callable[..., Any], ...]:
        return self.layer if isinstance(self.layer, tuple) else ()

    def layers(self, params: Any) -> Any:
        """Return the parameters of all layers, arrays `[layers, ...]`.

        Raises:
            ValueError: If there are none at `stack`.
        """
        found = _find(params, self.stack.split("/"))
        if found is None:
            raise ValueError(
                f"There are no parameters of layers at {self.stack!r}, only {leaf_paths(params)[:8]}. Give td.Staged the path of those "
                "that are stacked, such as stack='decoder/blocks'."
            )
        return found

    def own_extra(self, extra: Sequence[Any]) -> tuple[Any, ...]:
        """Return of each other argument what the layers have of their own, stacked; None if nothing."""
        return tuple(_find(each, self.stack.split("/")) for each in extra)

    def are_layers(self, params: Any) -> list[bool]:
        """Return of each parameter, in the order of `jax.tree.leaves`, whether it belongs to the layers."""
        return [path == self.stack or path.startswith(f"{self.stack}/") for path in leaf_paths(params)]

    def count_layers(self, params: Any) -> int:
        """Return how many layers there are.

        Raises:
            ValueError: If their arrays have different numbers.
        """
        leaves = jax.tree.leaves(self.layers(params))
        counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        if len(counts) != 1 or 0 in counts:
            raise ValueError(
                f"The parameters of layers at {self.stack!r} are to be stacked, arrays [layers, ...] with as many layers each, but have "
                f"the shapes {[leaf.shape for leaf in leaves][:8]}."
            )
        return counts.pop()


def _find(tree: Any, path: Sequence[str]) -> Any:
    """Return the part of a tree at a path; None if there is none."""
    for name in path:
        children = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda node, tree=tree: node is not tree)
        named = {jax.tree_util.keystr(key, simple=True): child for key, child in children if key}
        if name not in named:
            return None
        tree = named[name]
    return tree


def _shapes(tree: Any) -> tuple[Any, list[Any]]:
    return jax.tree.structure(tree), [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(tree)]


def _describe(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree))
