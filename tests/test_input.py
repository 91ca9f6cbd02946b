import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td
from tfdist_jax._sharding._input import num_rows, split_rows


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [(10, (3, 3, 3, 1)), (6, (2, 2, 2, 0)), (5, (2, 2, 1, 0)), (8, (2, 2, 2, 2)), (1, (1, 0, 0, 0)), (0, (0, 0, 0, 0))],
)
def test_rows_are_split_by_tensorflows_rule(rows, sizes):
    assert td.split_sizes(rows, 4) == sizes


def test_a_split_batch_holds_each_row_once():
    parts = split_rows({"x": np.arange(10)}, 4)
    assert [part["x"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_padding_is_zero_and_sharded_over_the_data_axis():
    batch = td.Mirrored().put({"x": np.arange(1, 11).reshape(10, 1)})
    assert batch.sizes == (2, 2, 2, 2, 2, 0, 0, 0)
    assert batch.data["x"].sharding.spec == P("data")
    assert np.asarray(batch.data["x"])[:, 0].tolist() == [*range(1, 11)] + [0] * 6


def test_a_batch_of_different_lengths_is_refused_with_its_shapes():
    with pytest.raises(ValueError, match=r"same number of rows, got the shapes \[\(3,\), \(4,\)\]"):
        num_rows([np.ones(3), np.ones(4)])


def test_a_scalar_in_a_batch_is_refused():
    with pytest.raises(ValueError, match="first axis"):
        num_rows([np.ones(3), np.float32(1)])
