"""`tf.feature_column.make_parse_example_spec`: what is to be read of serialized examples."""

from collections.abc import Iterable
from typing import Any

from tfdist_jax.compat.tensorflow.feature_column._base import FeatureColumn


def make_parse_example_spec(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Return what `tf.io.parse_example` has to read for columns, by key.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/make_parse_example_spec.

    Raises:
        ValueError: If one is no column, or two read a feature in different ways.
    """
    spec: dict[str, Any] = {}
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(f"All feature_columns must be FeatureColumn instances. Received: {column!r}")
        for key, value in column.parse_example_spec.items():
            if spec.setdefault(key, value) != value:
                raise ValueError(f"Columns read feature {key} in different ways: {spec[key]} and {value}.")
    return spec
