# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.data._dataset import (
    Dataset as Dataset,
)
from tfdist_jax.compat.tensorflow.data._elements import (
    DatasetSpec as DatasetSpec,
)
from tfdist_jax.compat.tensorflow.data._file_datasets import (
    FixedLengthRecordDataset as FixedLengthRecordDataset,
    TFRecordDataset as TFRecordDataset,
    TextLineDataset as TextLineDataset,
)
from tfdist_jax.compat.tensorflow.data._iterator import (
    DatasetIterator as _Iterator,
    NumpyIterator as NumpyIterator,
)
from tfdist_jax.compat.tensorflow.data._options import (
    AUTOTUNE as AUTOTUNE,
    Options as Options,
    ThreadingOptions as ThreadingOptions,
)
from tfdist_jax.compat.tensorflow.data._plan import (
    INFINITE as _INFINITE_CARDINALITY,
    UNKNOWN as _UNKNOWN_CARDINALITY,
)
from tfdist_jax.compat.tensorflow.data import (
    experimental as experimental,
)
Iterator = _Iterator
INFINITE_CARDINALITY = _INFINITE_CARDINALITY
UNKNOWN_CARDINALITY = _UNKNOWN_CARDINALITY
