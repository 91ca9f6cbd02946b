import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td


def reduced(fn, arrays, devices=8):
    mesh = td.make_mesh({"data": devices}, devices=jax.devices()[:devices])
    program = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=(P("data"),), out_specs=P(), check_vma=False))
    return program, program(arrays)


ARRAYS = [np.arange(16, dtype=np.float32), np.ones((8, 3), np.float32), np.arange(8, dtype=np.int32)]


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_fused_sum_is_the_sum_over_replicas(devices):
    _, sums = reduced(lambda arrays: td.fused_sum(arrays), ARRAYS, devices)
    for total, array in zip(sums, ARRAYS, strict=True):
        np.testing.assert_array_equal(total, array.reshape(devices, -1, *array.shape[1:]).sum(0))
        assert total.dtype == array.dtype


def test_fused_mean_is_the_mean_and_none_passes_through():
    _, means = reduced(lambda arrays: td.fused_mean([arrays[0], None, arrays[1]]), ARRAYS)
    np.testing.assert_allclose(means[0], ARRAYS[0].reshape(8, 2).mean(0))
    assert means[1] is None


def test_small_arrays_of_a_dtype_share_one_all_reduce():
    program, _ = reduced(lambda arrays: td.fused_sum(arrays), ARRAYS)
    assert program.lower(ARRAYS).compile().as_text().count("all-reduce(") == 2


def test_large_arrays_travel_alone():
    arrays = [np.ones((8, 300_000), np.float32), *ARRAYS[:2]]
    program, sums = reduced(lambda a: td.fused_sum(a), arrays)
    assert float(sums[0][0, 0]) == 8
    stablehlo = program.lower(arrays).as_text()
    assert stablehlo.count("stablehlo.all_reduce") == 2
    assert "300000xf32" in stablehlo.split("stablehlo.all_reduce")[1].split("->")[-1] or "1x300000xf32" in stablehlo


def test_reduce_ops_are_named_like_tensorflows():
    assert td.ReduceOp("MEAN") is td.ReduceOp.MEAN


def test_an_array_of_no_elements_is_summed():
    _, (total,) = reduced(lambda arrays: td.fused_sum(arrays), [np.ones((8, 0), np.float32)])
    assert total.shape == (1, 0)
    assert jnp.sum(total) == 0
