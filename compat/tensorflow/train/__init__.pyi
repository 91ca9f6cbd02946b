# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.io._messages import (
    BytesList as BytesList,
    Example as Example,
    Feature as Feature,
    FeatureList as FeatureList,
    FeatureLists as FeatureLists,
    Features as Features,
    FloatList as FloatList,
    Int64List as Int64List,
    SequenceExample as SequenceExample,
)
from tfdist_jax.compat.tensorflow.train._checkpoint import (
    Checkpoint as Checkpoint,
)
from tfdist_jax.compat.tensorflow.train._checkpoint_view import (
    CheckpointView as CheckpointView,
)
from tfdist_jax.compat.tensorflow.train._cluster_spec import (
    ClusterSpec as ClusterSpec,
)
from tfdist_jax.compat.tensorflow.train._manager import (
    CheckpointManager as CheckpointManager,
)
from tfdist_jax.compat.tensorflow.train._moving_average import (
    ExponentialMovingAverage as ExponentialMovingAverage,
)
from tfdist_jax.compat.tensorflow.train._new_checkpoints import (
    checkpoints_iterator as checkpoints_iterator,
)
from tfdist_jax.compat.tensorflow.train._options import (
    CheckpointOptions as CheckpointOptions,
)
from tfdist_jax.compat.tensorflow.train._reader import (
    list_variables as list_variables,
    load_checkpoint as load_checkpoint,
    load_variable as load_variable,
)
from tfdist_jax.compat.tensorflow.train._state_file import (
    get_checkpoint_state as get_checkpoint_state,
    latest_checkpoint as latest_checkpoint,
)
from tfdist_jax.compat.tensorflow.train import (
    experimental as experimental,
)
