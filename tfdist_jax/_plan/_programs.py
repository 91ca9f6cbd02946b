"""Programs of candidates, compiled for devices that need not be there."""

import functools
from typing import Any

import jax
from jax.sharding import NamedSharding

from tfdist_jax._explain import read_program
from tfdist_jax._internals import make_cpu_client
from tfdist_jax._pipeline import count_operations
from tfdist_jax._plan._candidate import schedule_of
from tfdist_jax._plan._figures import Figures, read_figures
from tfdist_jax._plan._training import Training
from tfdist_jax._sharding._layout import lay_out_shapes
from tfdist_jax._sharding._mesh import Device, batch_spec
from tfdist_jax._strategy import Strategy

# Neither memory nor collectives are decided where code for the processor is made, which takes half of the time. A pass that lets processors
# add up bfloat16 in float32 ends the process over gradients of meshes with axes left to XLA; these programs never run.
_FOR_CPU = {"xla_backend_optimization_level": 0, "xla_disable_hlo_passes": "all-reduce-promotion"}


@functools.lru_cache(maxsize=1)
def make_absent_devices(count: int) -> tuple[Device, ...]:
    """Return virtual CPU devices, more than there may be of JAX's own, to compile for."""
    return tuple(make_cpu_client(count).devices())


def compile_step(training: Training, strategy: Strategy, accumulate: int) -> Figures:
    """Compile a step of a training, with an update that reads each gradient once, and return what it costs.

    Raises:
        ValueError: As `Strategy.value_and_grad` does.
        JaxRuntimeError: If XLA cannot compile it.
    """
    step, args = _make_step(training, strategy, accumulate)
    is_cpu = strategy.mesh.devices.flat[0].platform == "cpu"
    compiled = step.lower(*args).compile(compiler_options=_FOR_CPU if is_cpu else None)
    return read_figures(read_program(compiled, strategy.mesh), schedule_of(strategy))


def find_share_of_16_bits(training: Training, strategy: Strategy, accumulate: int) -> float:
    """Return which share of a step's products are of arrays of 16 bits."""
    step, args = _make_step(training, strategy, accumulate)
    program = step.trace(*args).jaxpr
    is_product = lambda eqn: eqn.primitive.name in ("dot_general", "conv_general_dilated")
    is_short = lambda eqn: is_product(eqn) and all(var.aval.dtype.itemsize <= 2 for var in eqn.invars[:2])
    return count_operations(program, is_short) / max(count_operations(program, is_product), 1)


def _make_step(training: Training, strategy: Strategy, accumulate: int) -> tuple[Any, tuple[Any, ...]]:
    """Return a step, not compiled yet, and the shapes of its arguments."""
    mesh = strategy.mesh
    compute = strategy.value_and_grad(training.loss, has_aux=training.has_aux, accumulate=accumulate)
    state = lay_out_shapes(strategy.state_layout, training.state, mesh)
    structure = jax.tree.structure(state)

    def step(state: Any, batch: Any, *extra: Any) -> Any:
        params = training.find_params(state)
        out, gradients = compute(params, batch, *extra)
        updated = jax.tree.map(lambda old, gradient: (old - gradient).astype(old.dtype), params, gradients)
        new = {id(old): value for old, value in zip(jax.tree.leaves(params), jax.tree.leaves(updated), strict=True)}
        leaves = [new.get(id(leaf), leaf) for leaf in jax.tree.leaves(state)]
        return jax.tree.unflatten(structure, leaves), out

    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    lay_out = lambda leaf: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, batch_spec(mesh, leaf.ndim))
    )
    program = jax.jit(step, donate_argnums=0, out_shardings=(shardings, None))
    return program, (state, jax.tree.map(lay_out, training.batch), *training.extra)
