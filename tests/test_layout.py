import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from tfdist_jax._sharding._layout import largest_dimension_spec, sharded_dimension, tree_specs


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((64, 16), P("data")),
        ((16, 64), P(None, "data")),
        ((3, 5), P()),
        ((), P()),
        ((7, 8), P(None, "data")),
        ((0, 8), P()),
    ],
)
def test_the_largest_divisible_dimension_is_split(shape, spec):
    assert largest_dimension_spec(shape, 8, min_size=1) == spec


def test_small_arrays_stay_whole():
    assert largest_dimension_spec((8, 8), 8, min_size=65) == P()


@pytest.mark.parametrize(
    ("spec", "dimension"), [(P(), None), (P(None, "data"), 1), (P(("model", "data")), 0), (P("model"), None)]
)
def test_the_dimension_over_the_data_axis_is_found(spec, dimension):
    assert sharded_dimension(spec) == dimension


def test_rules_see_the_path_of_each_leaf():
    seen = []
    tree_specs(
        lambda path, leaf: seen.append((path, leaf.shape)) or P(),
        {"a": [jnp.ones(3)], "b": jax.ShapeDtypeStruct((2,), "int32")},
    )
    assert seen == [("['a'][0]", (3,)), ("['b']", (2,))]
