# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._gradients._forward_mode import (
    ForwardAccumulator as ForwardAccumulator,
)
from tfdist_jax.compat.tensorflow._gradients._gradient_tape import (
    GradientTape as GradientTape,
)
