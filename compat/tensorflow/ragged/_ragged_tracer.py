"""What stands for ragged tensors that the host computes while a function is traced."""

from typing import final

from tfdist_jax.compat.tensorflow._tensors._host_part import TRACERS
from tfdist_jax.compat.tensorflow._tensors._host_tracer import HostTracer
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor


@final
class RaggedTracer(HostTracer):
    """Stands for a ragged tensor: what it holds, and how long its rows are, is not known."""

    _what = "A ragged tensor"


def install() -> None:
    """Let it stand for ragged tensors; programs take it for one."""
    TRACERS[RaggedTensor] = RaggedTracer
    RaggedTensor.register(RaggedTracer)
