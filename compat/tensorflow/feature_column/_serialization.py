"""Columns as configurations, and back: what layers put into files."""

from collections.abc import Mapping
from typing import Any, Self

from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow.feature_column._base import FeatureColumn

_classes: dict[str, type] = {}
# Objects that configurations tell the class and the configuration of.
_objects: dict[str, type] = {}


def register_object(kind: type) -> type:
    """Let configurations name a class of objects that columns hold."""
    _objects[kind.__name__] = kind
    return kind


class Configured(FeatureColumn):
    """A column that is a named tuple of what its configuration holds."""

    _fields: tuple[str, ...]

    def __init_subclass__(cls) -> None:
        """Let configurations name the class."""
        _classes[cls.__name__] = cls

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, columns and functions by name."""
        return {name: _written(getattr(self, name)) for name in self._fields}

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        custom_objects: Mapping[str, Any] | None = None,
        columns_by_name: dict[str, Any] | None = None,
    ) -> Self:
        """Return the column of a configuration.

        Args:
            config: What `get_config` has returned.
            custom_objects: Functions and classes of the program, by name.
            columns_by_name: Columns that have been made before, to which this adds.

        Raises:
            ValueError: If `config` has other keys than the arguments, or names a function that is not known.
        """
        if set(config) != set(cls._fields):
            raise ValueError(f"Invalid config: {dict(config)}, expected keys: {cls._fields}")
        made = {} if columns_by_name is None else columns_by_name
        values = {name: _read(value, custom_objects or {}, made) for name, value in config.items()}
        for name in ("dtype", "normalizer_fn", "initializer"):
            if name in values:
                values[name] = _known(name, values[name], custom_objects or {})
        return cls(**values)


def _written(value: Any) -> Any:
    if isinstance(value, FeatureColumn):
        return serialize_feature_column(value)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple) and any(isinstance(part, FeatureColumn) for part in value):
        return tuple(map(_written, value))
    get_config = getattr(value, "get_config", None)
    if get_config is not None:
        return {"class_name": type(value).__name__, "config": get_config()}
    return value.__name__ if callable(value) and hasattr(value, "__name__") else value


def _read(value: Any, custom_objects: Mapping[str, Any], made: dict[str, Any]) -> Any:
    if isinstance(value, Mapping) and value.get("class_name") in _classes:
        return deserialize_feature_column(value, custom_objects, made)
    return tuple(_read(part, custom_objects, made) for part in value) if isinstance(value, list | tuple) else value


def _known(name: str, value: Any, custom_objects: Mapping[str, Any]) -> Any:
    if name == "dtype":
        return as_dtype(value)
    if isinstance(value, str):
        if value not in custom_objects:
            raise ValueError(f"Unknown {name}: {value!r}. Give it in `custom_objects`.")
        return custom_objects[value]
    if isinstance(value, Mapping):
        kind = {**_objects, **custom_objects}.get(value["class_name"])
        if kind is None:
            raise ValueError(f"Unknown {name}: {value['class_name']!r}. Give its class in `custom_objects`.")
        return kind.from_config(value["config"]) if hasattr(kind, "from_config") else kind(**value["config"])
    return value


def serialize_feature_column(fc: Any) -> Any:
    """Return a column as its class and its configuration; a feature's key as it is.

    Raises:
        ValueError: If it is neither.
    """
    if isinstance(fc, str):
        return fc
    if not isinstance(fc, Configured):
        raise ValueError(f"Only columns and keys of features can be written down. Received: {fc!r}")
    return {"class_name": type(fc).__name__, "config": fc.get_config()}


def deserialize_feature_column(
    config: Any, custom_objects: Mapping[str, Any] | None = None, columns_by_name: dict[str, Any] | None = None
) -> Any:
    """Return the column that a configuration tells of; of two with one name, the first for both.

    Args:
        config: What `serialize_feature_column` has returned.
        custom_objects: Functions and classes of the program, by name.
        columns_by_name: Columns that have been made before, to which this adds.

    Raises:
        ValueError: If its class is not known.
    """
    if isinstance(config, str):
        return config
    made = {} if columns_by_name is None else columns_by_name
    known = {**_classes, **(custom_objects or {})}
    if config["class_name"] not in known:
        raise ValueError(f"Unknown feature column: {config['class_name']!r}.")
    column = known[config["class_name"]].from_config(config["config"], custom_objects, made)
    return made.setdefault(f"{type(column).__name__}:{column.name}", column)


def serialize_feature_columns(feature_columns: Any) -> list[Any]:
    """Return columns as `serialize_feature_column` does."""
    return [serialize_feature_column(column) for column in feature_columns]


def deserialize_feature_columns(configs: Any, custom_objects: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the columns that configurations tell of."""
    made: dict[str, Any] = {}
    return [deserialize_feature_column(config, custom_objects, made) for config in configs]
