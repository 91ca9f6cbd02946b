"""Ready-made strategies: one file each."""

from tfdist_jax.strategies._central_storage import CentralStorage as CentralStorage
from tfdist_jax.strategies._compressed import Compressed as Compressed
from tfdist_jax.strategies._fsdp import FSDP as FSDP
from tfdist_jax.strategies._hsdp import HSDP as HSDP
from tfdist_jax.strategies._mirrored import Mirrored as Mirrored
from tfdist_jax.strategies._offloaded import Offloaded as Offloaded
from tfdist_jax.strategies._pipeline import Pipeline as Pipeline
from tfdist_jax.strategies._sharded import Sharded as Sharded
from tfdist_jax.strategies._single_device import SingleDevice as SingleDevice
from tfdist_jax.strategies._tensor_parallel import TensorParallel as TensorParallel
from tfdist_jax.strategies._zero1 import ZeRO1 as ZeRO1
