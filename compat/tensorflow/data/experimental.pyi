# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.data._csv_datasets import (
    CsvDataset as CsvDataset,
    make_csv_dataset as make_csv_dataset,
)
from tfdist_jax.compat.tensorflow.data._dataset import (
    cardinality as cardinality,
)
from tfdist_jax.compat.tensorflow.data._dataset_tables import (
    DatasetInitializer as DatasetInitializer,
    index_table_from_dataset as index_table_from_dataset,
    table_from_dataset as table_from_dataset,
)
from tfdist_jax.compat.tensorflow.data._example_datasets import (
    make_batched_features_dataset as make_batched_features_dataset,
)
from tfdist_jax.compat.tensorflow.data._experimental_files import (
    TFRecordWriter as TFRecordWriter,
    load as load,
    save as save,
    snapshot as snapshot,
)
from tfdist_jax.compat.tensorflow.data._optional import (
    Optional as Optional,
)
from tfdist_jax.compat.tensorflow.data._options import (
    AUTOTUNE as AUTOTUNE,
    AutoShardPolicy as AutoShardPolicy,
    AutotuneAlgorithm as AutotuneAlgorithm,
    AutotuneOptions as AutotuneOptions,
    DistributeOptions as DistributeOptions,
    ExternalStatePolicy as ExternalStatePolicy,
    OptimizationOptions as OptimizationOptions,
    SHARD_HINT as SHARD_HINT,
    ThreadingOptions as ThreadingOptions,
    enable_debug_mode as enable_debug_mode,
)
from tfdist_jax.compat.tensorflow.data._plan import (
    INFINITE as _INFINITE_CARDINALITY,
    UNKNOWN as _UNKNOWN_CARDINALITY,
)
from tfdist_jax.compat.tensorflow.data._random_access import (
    at as at,
)
from tfdist_jax.compat.tensorflow.data._reducers import (
    Reducer as Reducer,
    group_by_reducer as group_by_reducer,
)
from tfdist_jax.compat.tensorflow.data._sql import (
    SqlDataset as SqlDataset,
)
from tfdist_jax.compat.tensorflow.data._transformations import (
    RandomDataset as RandomDataset,
    assert_cardinality as assert_cardinality,
    bucket_by_sequence_length as bucket_by_sequence_length,
    choose_from_datasets as choose_from_datasets,
    copy_to_device as copy_to_device,
    counter as _Counter,
    dense_to_ragged_batch as dense_to_ragged_batch,
    dense_to_sparse_batch as dense_to_sparse_batch,
    enumerate_dataset as enumerate_dataset,
    from_list as from_list,
    get_next_as_optional as get_next_as_optional,
    get_single_element as get_single_element,
    get_structure as get_structure,
    group_by_window as group_by_window,
    ignore_errors as ignore_errors,
    map_and_batch as map_and_batch,
    pad_to_cardinality as pad_to_cardinality,
    parallel_interleave as parallel_interleave,
    parse_example_dataset as parse_example_dataset,
    prefetch_to_device as prefetch_to_device,
    rejection_resample as rejection_resample,
    sample_from_datasets as sample_from_datasets,
    scan as scan,
    shuffle_and_repeat as shuffle_and_repeat,
    take_while as take_while,
    unbatch as unbatch,
    unique as unique,
)
INFINITE_CARDINALITY = _INFINITE_CARDINALITY
UNKNOWN_CARDINALITY = _UNKNOWN_CARDINALITY
Counter = _Counter
