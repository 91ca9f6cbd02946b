"""A functional model as the functions of a `td.Staged`, and what goes from each to the next."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import keras

from tfdist_jax import Staged
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._state import cell_name
from tfdist_jax.compat.tensorflow.keras._internals import (
    backend,
    get_keras_mask,
    global_state,
    layer_module,
    set_keras_mask,
)
from tfdist_jax.compat.tensorflow.keras._pipelining._layer_calls import LayerCalls
from tfdist_jax.compat.tensorflow.keras._variables._reading_scope import reading
from tfdist_jax.compat.tensorflow.keras._variables._tensor_attributes import LOGITS
from tfdist_jax.compat.tensorflow.random._random_state import drawing_from, next_key

_SEEDS = "threefry2x32"


class ModelOutputs(NamedTuple):
    """What a model's stages give for some rows.

    Attributes:
        values: What the model returns, with Keras's notes on it.
        losses: What its layers have added as losses.
    """

    values: Any
    losses: list[jax.Array]


class _Noted(NamedTuple):
    """A tensor, with what Keras notes on it, as a tree of arrays."""

    value: Any
    mask: Any
    logits: Any


Finish = Callable[[ModelOutputs, Any, Any], Any]
"""From what the stages give for rows, the rows, and other values, to what `last` returns."""


@final
class ModelStages:
    """A functional model, cut into groups of calls, as functions of its variables' values.

    Its parameters are the trained variables, and others of floating numbers, by name: each device has those that its stages use.

    Attributes:
        model: The model.
    """

    def __init__(self, model: keras.Model, begins: Sequence[str] | None, *, training: bool) -> None:
        """Cut a model.

        Args:
            model: One whose graph `graph_of` gives.
            begins: The layers that begin the second group and all others; each call is a group if None.
            training: Whether its layers train.
        """
        self.model, self._training = model, training
        self._layers = LayerCalls(model)
        self._groups = self._layers.group(begins)
        self._live = self._find_live()
        seeds = {id(generator.state): generator.state for generator in _seed_generators(model)}
        others = [variable for variable in model.non_trainable_variables if id(variable) not in seeds]
        is_floating = lambda variable: jnp.issubdtype(variable.dtype, jnp.floating)
        self._seeds = [*seeds.values()]
        self._trained = _by_name(model.trainable_variables)
        self._kept = _by_name([variable for variable in others if is_floating(variable)], len(self._trained))
        self._others = [variable for variable in others if not is_floating(variable)]
        self._drawn_from: set[int] = set()
        self._counted: set[int] = set()

    @property
    def num_groups(self) -> int:
        """How many groups of calls there are."""
        return len(self._groups)

    def names_of(self, stages: Sequence[range]) -> list[list[str]]:
        """Return the names of the layers that each stage calls, from the numbers of its groups."""
        names = lambda stage: [call.name for number in stage for call in self._groups[number] if not call.is_entry]
        return [[*dict.fromkeys(names(stage))] for stage in stages]

    def staged(self, finish: Finish) -> Staged:
        """Return the function of the model's parameters, a batch and what `other_values` gives, that ends with `finish`."""
        first, *rest = (functools.partial(self._run_group, number) for number in range(self.num_groups))
        return Staged(
            first=lambda params, batch, values: first(params, {"tensors": {}, "losses": []}, batch, values),
            layer=rest,
            last=functools.partial(self._finish, finish),
        )

    def params(self) -> dict[str, jax.Array]:
        """Return the present values of variables, by name."""
        return {name: _state.read(variable) for name, variable in (self._trained | self._kept).items()}

    def of_trained(self, params: Mapping[str, Any]) -> list[Any]:
        """Return, of what there is for each parameter, that of the trained ones, in the order of Keras."""
        return [params[name] for name in self._trained]

    def other_values(self) -> dict[str, Any]:
        """Return what else the functions take: random keys, integers, and what metrics have counted so far."""
        key = lambda variable: jax.random.wrap_key_data(_state.read(variable).astype(jnp.uint32), impl=_SEEDS)
        return {
            "seeds": [key(variable) for variable in self._seeds],
            "draws": next_key(),
            "others": [_state.read(variable) for variable in self._others],
            "metrics": [_state.read(variable) for variable in self.model.metrics_variables],
        }

    def move_seeds_on(self) -> None:
        """Let the next step draw other numbers, where the layers have drawn some."""
        for variable in self._seeds:
            if id(variable) in self._drawn_from:
                state = _state.read(variable)
                _state.write(variable, state + jnp.array([0, 1], state.dtype))

    @property
    def counts_in_metrics(self) -> bool:
        """Whether `finish` has updated metrics, such as those of the losses of several outputs."""
        return bool(self._counted)

    @staticmethod
    def pack(outputs: Any) -> Any:
        """Return outputs with Keras's notes on them, as a tree of arrays."""
        return jax.tree.map(_pack, outputs)

    @staticmethod
    def unpack(packed: Any) -> Any:
        """Return outputs from what `pack` has given."""
        return jax.tree.map(_unpack, packed, is_leaf=_is_noted)

    def _find_live(self) -> list[list[int]]:
        """Return, for each group, the tensors that are made up to it and needed behind it."""
        needed, live = {*self._layers.outputs}, []
        for group in reversed(self._groups):
            live.append(sorted(needed - {*self._layers.inputs}))
            needed |= {number for call in group for number in call.reads}
            needed -= {number for call in group for number in call.writes}
        return live[::-1]

    def _run_group(self, number: int, params: Any, before: Any, batch: Any, values: Any) -> Any:
        """Return what the functions behind a group need of all that has been computed."""
        with self._running(params, values) as scope, self._calling():
            tensors = self._tensors(before, batch)
            for call in self._groups[number]:
                given = call.run([tensors[i] for i in call.reads], self._training)
                tensors.update(zip(call.writes, given, strict=True))
            losses = [*before["losses"], *scope.losses]
            return {"tensors": {f"{i}": _pack(tensors[i]) for i in self._live[number]}, "losses": losses}

    def _finish(self, finish: Finish, params: Any, before: Any, batch: Any, values: Any) -> Any:
        with self._running(params, values, counts=True):
            tensors = self._tensors(before, batch)
            outputs = self._layers.pack_outputs([tensors[i] for i in self._layers.outputs])
            return finish(ModelOutputs(outputs, before["losses"]), batch, values)

    def _tensors(self, before: Any, batch: Any) -> dict[int, Any]:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        tensors = dict(zip(self._layers.inputs, self._layers.take_inputs(x), strict=True))
        return tensors | {int(i): _unpack(noted) for i, noted in before["tensors"].items()}

    @contextlib.contextmanager
    def _running(self, params: Any, values: Any, *, counts: bool = False) -> Iterator[keras.StatelessScope]:
        """Let layers find values in place of variables.

        Raises:
            NotImplementedError: If they change variables.
        """
        pairs = [
            *((variable, params[name]) for name, variable in self._trained.items()),
            *((variable, jax.lax.stop_gradient(params[name])) for name, variable in self._kept.items()),
            *zip(self._others, values["others"], strict=True),
        ]
        seeds = [
            (variable, jax.random.key_data(key)) for variable, key in zip(self._seeds, values["seeds"], strict=True)
        ]
        metrics = [*zip(self.model.metrics_variables, values["metrics"], strict=True)]
        words = jnp.concatenate([jax.random.key_data(values["draws"]), jnp.zeros(1, jnp.uint32)])
        scope = keras.StatelessScope(state_mapping=[*pairs, *seeds, *metrics], collect_losses=True)
        mapped = {**scope.state_mapping}
        with reading(), drawing_from(words), scope:
            yield scope
        changed = {key for key, value in mapped.items() if scope.state_mapping[key] is not value}
        for variable, _ in [*pairs, *([] if counts else metrics)]:
            if id(variable) in changed:
                is_metric = any(variable is each for each in self.model.metrics_variables)
                remedy = _OF_METRICS if is_metric else _OF_STATISTICS if "moving_" in variable.name else ""
                raise NotImplementedError(_CHANGES.format(path=variable.path, remedy=remedy))
        self._drawn_from |= changed & {id(variable) for variable in self._seeds}
        self._counted |= changed & {id(variable) for variable, _ in metrics}

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Let layers be called as inside of the model."""
        model = self.model
        context = layer_module.CallContext(entry_layer=model)
        context.set_value("training", self._training)
        before = global_state.get_global_attribute("current_call_ctx")
        global_state.set_global_attribute("current_call_ctx", context)
        is_mixed = model.compute_dtype != model.variable_dtype
        try:
            model._clear_losses()
            with backend.AutocastScope(model.compute_dtype) if is_mixed else contextlib.nullcontext():
                yield
        finally:
            global_state.set_global_attribute("current_call_ctx", before)


_CHANGES = (
    "{path} changes while the model computes, but a pipeline computes one microbatch after another, and what they would make of it is not "
    "what the whole batch does. {remedy}Or train under tf.distribute.experimental.FSDPStrategy, which has no microbatches."
)
_OF_STATISTICS = "In place of BatchNormalization take LayerNormalization or GroupNormalization, or freeze it (`layer.trainable = False`). "
_OF_METRICS = "Let the model return what is to be counted, and count it in a metric that `compile` gets. "


def _seed_generators(model: keras.Model) -> list[Any]:
    layers = model._flatten_layers()
    return [generator for layer in layers for generator in layer._seed_generators]


def _by_name(variables: Sequence[Any], start: int = 0) -> dict[str, Any]:
    """Return variables by names, which rules for paths match, in front of which numbers tell variables of one path from each other."""
    return {f"{i}/{cell_name(variable)}": variable for i, variable in enumerate(variables, start)}


def _pack(value: Any) -> _Noted:
    return _Noted(value, get_keras_mask(value), getattr(value, LOGITS, None))


def _unpack(noted: _Noted) -> Any:
    if noted.mask is not None:
        set_keras_mask(noted.value, noted.mask)
    if noted.logits is not None:
        setattr(noted.value, LOGITS, noted.logits)
    return noted.value


def _is_noted(node: Any) -> bool:
    return isinstance(node, _Noted)
