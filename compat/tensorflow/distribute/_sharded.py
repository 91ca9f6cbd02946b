"""`FSDPStrategy` and `ModelParallelStrategy` in `tf.distribute.experimental`: variables in parts, which TensorFlow's do not have."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax

import tfdist_jax
from tfdist_jax._sharding._mesh import DATA, EXPERT, FSDP_AXIS, SEQUENCE, TENSOR, Axes, Device
from tfdist_jax._sharding._rules import PathRules
from tfdist_jax._stateful._storage import ShardedStorage, Storage
from tfdist_jax.compat.tensorflow._platform._devices import resolve_devices
from tfdist_jax.compat.tensorflow.distribute._layout_map import KerasLayouts, is_layout_map
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


@final
class FSDPStrategy(Strategy):
    """Fully sharded data parallelism: each device keeps 1/N of each large variable, optimizers' included, and of the batch.

    Not one of TensorFlow's: used like `tf.distribute.MirroredStrategy`, with the same results. In a step each device gathers all variables
    of the model, but none that an optimizer keeps of them: gradients are scattered, and the optimizer changes the parts where they are.
    A step that uses variables after it has applied gradients to them, or applies them in a loop or conditional, has the optimizer's
    variables whole on each device while it runs.
    """

    def __init__(self, devices: Sequence[str] | None = None, *, min_size: int = 1024) -> None:
        """Split variables over devices.

        Args:
            devices: Such as ["/gpu:0", "/gpu:1"]; all of JAX's default devices if None.
            min_size: Variables with fewer elements, and those with no dimension that the number of devices divides, stay whole on every
                device.

        Raises:
            ValueError: If a device is named twice, or `min_size` is no positive number.
        """
        if not isinstance(min_size, int) or min_size < 1:
            raise ValueError(f"`min_size` must be a number of elements, 1 or more, got {min_size!r}.")
        chosen = tuple(jax.local_devices() if devices is None else resolve_devices(devices))
        super().__init__(tfdist_jax.FSDP(chosen, min_size))

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept: a part on each device."""
        return ShardedStorage(self.native)


@final
class ModelParallelStrategy(Strategy):
    """Tensor parallelism: groups of devices share variables, as rules say, and what is computed with them; batches are split over groups.

    Not one of TensorFlow's: used like `tf.distribute.MirroredStrategy` with as many replicas as there are groups, with the same results.
    XLA divides the computation and puts in what communication it takes. What an optimizer keeps of a variable lies as that does. Steps
    that need tensors' values while they run are refused.

    Example::

        rules = {"up/kernel": P(None, "tensor"), "down/kernel": P("tensor")}
        strategy = tf.distribute.experimental.ModelParallelStrategy(rules, 4)
    """

    def __init__(self, rules: Any, axes: int | Axes | None = None, *, devices: Sequence[str] | None = None) -> None:
        """Lay variables out over a mesh.

        Args:
            rules: Ends of variables' paths, as regular expressions, to `jax.sharding.PartitionSpec` over the axes: a mapping, or pairs.
                The first that matches holds; what none matches is whole on each device. Or a `keras.distribution.LayoutMap`, which goes
                by its own rules.
            axes: The devices of a group, which is the axis "tensor"; or all axes with their sizes, "data" among them, over which batches
                are split, and variables that name it. Of a `LayoutMap` its device mesh is taken, whose axis "data", or "batch", or else
                the first one, is the batches'.
            devices: Such as ["/gpu:0", "/gpu:1"]; all of JAX's default devices if None.

        Raises:
            TypeError: If `rules` or a layout in them is of another type.
            ValueError: If axes are missing or not known, or do not divide the devices.
        """
        super().__init__(
            _with_layouts(rules, axes, devices) if is_layout_map(rules) else _with_rules(rules, axes, devices)
        )

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept: as the rules lay them out."""
        return ShardedStorage(self.native)


def _with_layouts(layouts: Any, axes: int | Axes | None, devices: Sequence[str] | None) -> tfdist_jax.Strategy:
    if layouts.device_mesh is not None and axes is None and devices is None:
        mesh = layouts.device_mesh
        names = [f"/{name}" for name in mesh.devices.flat]
        axes = tuple(zip(mesh.axis_names, mesh.shape, strict=True))
        return KerasLayouts.of(layouts, _pairs_of(axes), tuple(resolve_devices(names)))
    if layouts.device_mesh is not None:
        raise ValueError(
            f"The LayoutMap has a device mesh of its own, {layouts.device_mesh}, which says which axes and devices there are, but `axes` "
            f"is {axes!r} and `devices` is {devices!r}. Leave them out, or make the LayoutMap with None as its mesh."
        )
    return KerasLayouts.of(layouts, _pairs_of(axes), _resolve(devices))


def _with_rules(rules: PathRules, axes: int | Axes | None, devices: Sequence[str] | None) -> tfdist_jax.Strategy:
    if not isinstance(rules, Mapping | list | tuple):
        raise TypeError(
            "`rules` must be a mapping from ends of variables' paths to jax.sharding.PartitionSpec, pairs of them, or a "
            f"keras.distribution.LayoutMap, got {rules!r}."
        )
    return tfdist_jax.Sharded(_pairs_of(axes), rules, devices=_resolve(devices))


def _resolve(devices: Sequence[str] | None) -> tuple[Device, ...]:
    return tuple(jax.local_devices() if devices is None else resolve_devices(devices))


def _pairs_of(axes: int | Axes | None) -> tuple[tuple[str, int], ...]:
    if axes is None:
        raise ValueError(
            "`axes` is needed: how many devices share each layer, such as 4, or axes with their sizes, such as "
            '{"data": -1, "tensor": 4}.'
        )
    if isinstance(axes, int):
        return ((DATA, -1), (TENSOR, axes))
    pairs = tuple(axes.items() if isinstance(axes, Mapping) else axes)
    names = [name for name, _ in pairs]
    if taken := [name for name in (FSDP_AXIS, EXPERT, SEQUENCE) if name in names]:
        raise ValueError(
            f"The axes {names} have {taken[0]!r}, which means something else to this library's own strategies (`td.Sharded`). Batches are "
            f"split over {DATA!r}, and so is a variable whose rule names it; give others another name."
        )
    return pairs
