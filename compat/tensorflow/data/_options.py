"""`tf.data.Options` and the constants of datasets."""

import enum
from typing import Any, final

AUTOTUNE = -1


class AutoShardPolicy(enum.IntEnum):
    """How a dataset is divided between the processes of a cluster."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


@final
class DistributeOptions:
    """How a dataset is distributed."""

    def __init__(self) -> None:
        """Choose by the kind of dataset."""
        self.auto_shard_policy = AutoShardPolicy.AUTO
        self.num_devices: int | None = None


@final
class Options:
    """Options of a dataset; set attributes, then `dataset.with_options(options)`.

    `experimental_distribute.auto_shard_policy` and `deterministic` are meaningful; the others that TensorFlow has
    tune its own runtime and are accepted.
    """

    def __init__(self) -> None:
        """Use the defaults."""
        self.experimental_distribute = DistributeOptions()
        self.deterministic: bool | None = None
        self.autotune: Any = None
        self.experimental_optimization: Any = None
        self.threading: Any = None
