"""Dictionaries keep the order of their keys wherever JAX takes structures apart."""

from typing import NamedTuple

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order, restore_dict_order


class Point(NamedTuple):
    """A pair."""

    x: object
    y: object


NESTED = {"z": [1, {"k": 2, "c": (3, {})}], "a": Point({"q": 4, "b": 5}, None)}


def test_structure_comes_back_in_its_order():
    assert restore_dict_order(in_order(NESTED)) == NESTED
    doubled = map_in_order(lambda x: 2 * x, NESTED)
    assert list(doubled) == ["z", "a"] and list(doubled["z"][1]) == ["k", "c"] and list(doubled["a"].x) == ["q", "b"]
    assert doubled["a"] == Point({"q": 8, "b": 10}, None) and doubled["z"][1]["c"] == (6, {})


def test_what_holds_no_dictionary_is_not_copied():
    plain = ([np.ones(2)], (1, None), Point(1, 2))
    assert in_order(plain) is plain and restore_dict_order(plain) is plain


def test_order_makes_no_other_structure_and_leaves_are_in_the_order_of_keys():
    one, other = in_order({"b": 1, "a": 2}), in_order({"a": 2, "b": 1})
    assert jax.tree.structure(one) == jax.tree.structure(other) != jax.tree.structure(in_order({"a": 2, "c": 1}))
    assert jax.tree.leaves(one) == jax.tree.leaves(other) == [2, 1]
