"""Ready-made strategies: one file each."""

from tfdist_jax.strategies._fsdp import FSDP as FSDP
from tfdist_jax.strategies._mirrored import Mirrored as Mirrored
from tfdist_jax.strategies._single_device import SingleDevice as SingleDevice
