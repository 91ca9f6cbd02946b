import collections
import types

import jax
import numpy as np
import pytest

from tfdist_jax import make_mesh
from tfdist_jax._sharding._mesh import num_replicas, replicas


@pytest.mark.parametrize("axes", [{"data": 8}, {"data": 4, "model": 2}])
def test_mesh_has_the_requested_shape(axes):
    assert dict(make_mesh(axes).shape) == axes


def test_mesh_uses_the_named_devices_in_their_order():
    devices = jax.devices()[3:0:-1]
    assert list(make_mesh({"data": 3}, devices=devices).devices.flat) == devices


def test_mesh_says_how_many_devices_are_missing():
    with pytest.raises(ValueError, match=r"needs 3 devices .* but 8 are visible"):
        make_mesh({"data": 3})


def test_mesh_refuses_a_device_named_twice():
    with pytest.raises(ValueError, match="Name each device once"):
        make_mesh({"data": 2}, devices=[jax.devices()[0]] * 2)


def test_replicas_are_the_indices_of_the_data_axis():
    mesh = make_mesh({"model": 2, "data": 4})
    assert (num_replicas(mesh), replicas(mesh)) == (4, tuple(mesh.devices[0]))


def test_a_replica_must_not_lie_in_several_processes():
    class MeshOfProcesses:
        axis_names = ("model", "data")
        shape = types.MappingProxyType({"model": 2, "data": 2})
        devices = np.array([[types.SimpleNamespace(process_index=i) for _ in range(2)] for i in range(2)])

    with pytest.raises(NotImplementedError, match=r"processes \[0, 1\].*make them the mesh's first"):
        replicas(MeshOfProcesses())


def test_mesh_over_tpu_slices_needs_a_first_axis_that_they_divide():
    """That it goes over them, `tests/test_tpu.py` shows."""
    Chip = collections.namedtuple("Chip", ["id", "platform", "slice_index"])
    chips = [Chip(i, "tpu", i // 3) for i in range(6)]
    with pytest.raises(ValueError, match=r"'data' with 3 indices, has to go over 2 TPU slices"):
        make_mesh({"data": 3, "model": 2}, devices=chips)
