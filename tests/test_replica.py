import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td


@pytest.fixture
def strategy():
    return td.Mirrored(tuple(jax.devices()[:4]))


def test_each_replica_sees_its_rows_and_its_index(strategy):
    rows = strategy.split(np.arange(8.0))
    result = strategy.run(lambda x, k: (x.sum() * k, jax.lax.axis_index(td.DATA)), rows, 10)
    assert [float(v) for v in result[0].values] == [10, 50, 90, 130]
    assert [int(v) for v in result[1].values] == [0, 1, 2, 3]


def test_results_lie_on_their_replicas_devices(strategy):
    result = strategy.run(lambda x: x * 2, strategy.split(np.arange(8.0)))
    assert [next(iter(v.devices())) for v in result.values] == list(strategy.mesh.devices.flat)


def test_collectives_go_by_the_axis_name(strategy):
    total = strategy.run(lambda x: jax.lax.psum(x.sum(), td.DATA), strategy.split(np.arange(8.0)))
    assert [float(v) for v in total.values] == [28] * 4


@pytest.mark.parametrize(
    ("op", "axis", "expected"), [("SUM", None, [12, 16]), ("MEAN", None, [3, 4]), ("SUM", 0, 28), ("MEAN", 0, 3.5)]
)
def test_reduce_combines_the_replicas_values(strategy, op, axis, expected):
    rows = strategy.split(np.arange(8.0))
    np.testing.assert_array_equal(strategy.reduce(td.ReduceOp(op), rows, axis=axis), expected)


def test_the_mean_over_an_axis_counts_every_row_once(strategy):
    uneven = strategy.split(np.arange(10.0))
    assert uneven.is_uneven
    assert float(strategy.reduce(td.ReduceOp.MEAN, uneven, axis=0)) == 4.5


def test_gather_joins_in_replica_order(strategy):
    for rows in (8, 10):
        np.testing.assert_array_equal(strategy.gather(strategy.split(np.arange(rows)), axis=0), np.arange(rows))
    columns = strategy.run(lambda x: x.reshape(1, 2), strategy.split(np.arange(8)))
    assert strategy.gather(columns, axis=1).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_scalars_cannot_be_gathered(strategy):
    with pytest.raises(ValueError, match="Use `reduce`"):
        strategy.gather(strategy.run(lambda x: x.sum(), strategy.split(np.arange(8))), axis=0)


def test_a_shared_value_cannot_be_summed_over_replicas(strategy):
    with pytest.raises(ValueError, match="cannot be summed over replicas"):
        strategy.reduce(td.ReduceOp.SUM, 1.0)
    assert strategy.reduce(td.ReduceOp.MEAN, 1.0) == 1.0


def test_an_uneven_split_names_the_exact_way(strategy):
    with pytest.raises(ValueError, match="exact for uneven batches"):
        strategy.run(jnp.sum, strategy.split(np.arange(10.0)))


def test_values_of_another_strategy_are_refused(strategy):
    with pytest.raises(ValueError, match="for 8 replicas was passed to a strategy with 4"):
        strategy.run(jnp.sum, td.Mirrored().split(np.arange(8.0)))


def test_local_results_are_a_tuple(strategy):
    assert strategy.local_results(5) == (5,)
    assert len(strategy.local_results(strategy.split(np.arange(8)))) == 4


def test_a_fresh_run_of_the_same_function_is_not_traced_again(strategy):
    traces = []

    def fn(x):
        traces.append(1)
        return x + 1

    for _ in range(3):
        strategy.run(fn, strategy.split(np.arange(8.0)))
    assert len(traces) == 1
