"""What stands for ragged tensors that the host computes while a function is traced."""

from typing import final

from tfdist_jax.compat.tensorflow._tensors._host_tracer import HostTracer


@final
class RaggedTracer(HostTracer):
    """Stands for a ragged tensor: what it holds, and how long its rows are, is not known."""

    _what = "A ragged tensor"
