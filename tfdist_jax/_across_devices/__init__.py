"""Layers whose parts lie on several devices, and which know the axes of a mesh by name; on one device, they are what they say."""

from tfdist_jax._across_devices._attention import attend as attend, token_positions as token_positions
from tfdist_jax._across_devices._experts import (
    Routed as Routed,
    compute_router_z_loss as compute_router_z_loss,
    run_experts as run_experts,
)
