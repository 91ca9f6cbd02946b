"""Folders that `keras.callbacks.OrbaxCheckpoint` has written: which variable each of their arrays belongs to.

Keras looks for variables by their paths alone. These contain numbers that a process gives to layers without a name, and a model
that is rebuilt from its configuration may lack its name in them; what Keras does not find it leaves as it is without a word.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from tfdist_jax._checkpoint._array_files import as_orbax_takes_it, read_tree
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import orbax_checkpoint, saving_lib

_log = logging.getLogger("tfdist_jax")
_ARRAYS, _CONFIG, _ASSETS = "pytree", "model_config", "assets"
_NUMBER = re.compile(r"_(\d+)$")

Parts = tuple[Any, ...]


def find_orbax_step(path: Any) -> Path | None:
    """Return the newest of the checkpoints in a folder, or the folder if it is one itself; None if it is neither."""
    folder = Path(path)
    if _is_step(folder):
        return folder
    steps = [step for step in folder.glob("[0-9]*") if step.name.isdigit() and _is_step(step)]
    return max(steps, key=lambda step: int(step.name), default=None)


def _is_step(folder: Path) -> bool:
    return (folder / "_CHECKPOINT_METADATA").is_file() and (folder / _ARRAYS).is_dir()


def load_orbax_model(step: Path, custom_objects: Any = None, compile: bool = True, safe_mode: bool = True) -> Any:
    """Return the model of a checkpoint, with its weights, its optimizer's state and its assets.

    Raises:
        ValueError: If the checkpoint has weights only.
    """
    if not (step / _CONFIG).is_dir():
        raise ValueError(
            f"{step} holds the weights of a model and not the model: it was saved with `save_weights_only=True`. Make the "
            "model, and load them with `model.load_weights`."
        )
    config = read_tree(step / _CONFIG)["config"]
    model: Any = saving_lib._model_from_config(config, custom_objects, compile, safe_mode)
    load_orbax_weights(model, step)
    if (step / _ASSETS).is_dir():
        saving_lib._load_assets_from_dict(model, read_tree(step / _ASSETS))
    return model


def load_orbax_weights(model: keras.Model, step: Path, skip_mismatch: bool = False) -> None:
    """Give a model's variables, and those of its optimizer if it was saved, their values of a checkpoint.

    Args:
        model: The model, built.
        step: The checkpoint.
        skip_mismatch: Leave variables as they are that the checkpoint does not have, or has in another shape.

    Raises:
        ValueError: If variables and saved arrays do not belong together.
    """
    saved = read_tree(step / _ARRAYS)
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    arrays = {**_flatten(saved["trainable_variables"]), **_flatten(saved.get("non_trainable_variables", {}))}
    origins = _find_origins([variable.path for variable in variables], arrays)
    values = {i: arrays[path] for i, path in origins.items() if arrays[path].shape == tuple(variables[i].shape)}
    if len(values) < max(len(variables), len(arrays)) and not skip_mismatch:
        raise ValueError(_mismatch(step, variables, arrays, {variables[i].path for i in values}))
    for i, value in values.items():
        variables[i].assign(value)
    if model.optimizer is not None and "optimizer_variables" in saved:
        paths = {variables[i].path: path for i, path in origins.items()}
        _load_optimizer(model, paths, _flatten(saved["optimizer_variables"]))


def _mismatch(step: Path, variables: Iterable[Any], arrays: Mapping[str, Any], found: set[str]) -> str:
    own = {variable.path: tuple(variable.shape) for variable in variables}
    missing = {path: shape for path, shape in own.items() if path not in found}
    return (
        f"{step} is of another model: of this model's variables it lacks {missing or 'none'}; it has "
        f"{ {path: array.shape for path, array in arrays.items()} }. Make the model as it was when it was saved, built, or "
        "load what fits with `skip_mismatch=True`."
    )


def _load_optimizer(model: Any, origins: Mapping[str, str], saved: Mapping[str, np.ndarray]) -> None:
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    # The optimizer's variables are named after the model's, as in "adam/dense_kernel_momentum".
    renamed = sorted(
        ((_joined(path), _joined(origin)) for path, origin in origins.items()), key=lambda pair: -len(pair[0])
    )
    arrays = {_without_number(path): array for path, array in saved.items()}
    values = [arrays.get(_without_number(_rename(variable.path, renamed))) for variable in optimizer.variables]
    if len(arrays) != len(values) or any(
        value is None or value.shape != tuple(variable.shape)
        for value, variable in zip(values, optimizer.variables, strict=True)
    ):
        others = sorted({path.rpartition("/")[0] for path in saved})
        _log.warning(
            "The optimizer %s keeps its state: what was saved is that of another one, %s.", optimizer.name, others
        )
        return
    for variable, value in zip(optimizer.variables, values, strict=True):
        variable.assign(value)


def _joined(path: str) -> str:
    return path.replace("/", "_") + "_"


def _rename(path: str, renamed: Iterable[tuple[str, str]]) -> str:
    owner, _, name = path.rpartition("/")
    for own, origin in renamed:
        if name.startswith(own):
            return f"{owner}/{origin}{name.removeprefix(own)}"
    return path


def _without_number(path: str) -> str:
    """Return the path of an optimizer's variable without the number that the optimizer was given."""
    owner, _, name = path.rpartition("/")
    return f"{_NUMBER.sub('', owner)}/{name}"


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    paths: dict[str, np.ndarray] = {}
    for key, value in tree.items():
        paths |= _flatten(value, f"{prefix}{key}/") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return paths


def _find_origins(paths: list[str], saved: Iterable[str]) -> dict[int, str]:
    """Return the saved path that each path, by its position, corresponds to: the same, or if names differ, of the same place."""
    same = {i: path for i, path in enumerate(paths) if path in set(saved)}
    if len(same) == len(paths) == len(set(paths)):
        return same
    own, others = _ranked(paths), dict(zip(_ranked(saved), saved, strict=True))
    if len(set(own)) < len(own) or len(others) < len(set(saved)):
        return {}
    origins = {}
    for i, parts in enumerate(own):
        fitting = [parts] if parts in others else [other for other in others if _ends_with(other, parts)]
        if len(fitting) == 1:
            origins[i] = others[fitting[0]]
    return origins if len(set(origins.values())) == len(origins) else {}


def _ends_with(one: Parts, other: Parts) -> bool:
    """Whether one path is the other with a model's name before it."""
    shorter = min(len(one), len(other))
    return one[-shorter:] == other[-shorter:]


def _ranked(paths: Iterable[str]) -> list[Parts]:
    """Return paths in which a number counts only as the place among those of the same name: dense_6, dense_8 as 0, 1."""
    split = [[_name_and_number(part) for part in path.split("/")] for path in paths]
    numbers: dict[str, set[int]] = {}
    for parts in split:
        for name, number in parts:
            numbers.setdefault(name, set()).add(number)
    ranks = {name: {number: i for i, number in enumerate(sorted(found))} for name, found in numbers.items()}
    return [tuple((name, ranks[name][number]) for name, number in parts) for parts in split]


def _name_and_number(part: str) -> tuple[str, int]:
    found = _NUMBER.search(part)
    return (part, -1) if found is None else (part[: found.start()], int(found[1]))


def _of_several_processes(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def get_state_tree(model: Any) -> Any:
        return jax.tree.map(as_orbax_takes_it, original(model))

    return get_state_tree


CHANGES = (
    Hook(
        orbax_checkpoint,
        "_get_state_tree",
        _of_several_processes,
        "model",
        "Orbax refuses what each of several processes has for itself, such as the state of metrics",
    ),
)
