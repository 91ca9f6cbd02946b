"""`tf.tpu.XLAOptions`: how TensorFlow hands programs to XLA, which is JAX's to decide here."""

from typing import NamedTuple


class XLAOptions(NamedTuple):
    """Settings of `tf.distribute.RunOptions`; they change nothing, since they say how XLA compiles and not what.

    See https://www.tensorflow.org/api_docs/python/tf/tpu/XLAOptions.
    """

    use_spmd_for_xla_partitioning: bool = True
    enable_xla_dynamic_padder: bool = True
    use_shardy_partitioner: bool = False
