"""`tf.data.experimental`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "data._csv_datasets": "CsvDataset make_csv_dataset",
        "data._dataset": "cardinality",
        "data._dataset_tables": "DatasetInitializer index_table_from_dataset table_from_dataset",
        "data._experimental_files": "TFRecordWriter load save snapshot",
        "data._example_datasets": "make_batched_features_dataset",
        "data._optional": "Optional",
        "data._options": (
            "AUTOTUNE AutoShardPolicy AutotuneAlgorithm AutotuneOptions DistributeOptions ExternalStatePolicy "
            "OptimizationOptions SHARD_HINT ThreadingOptions enable_debug_mode"
        ),
        "data._random_access": "at",
        "data._plan": "INFINITE_CARDINALITY=INFINITE UNKNOWN_CARDINALITY=UNKNOWN",
        "data._reducers": "Reducer group_by_reducer",
        "data._sql": "SqlDataset",
        "data._transformations": (
            "Counter=counter RandomDataset assert_cardinality bucket_by_sequence_length choose_from_datasets copy_to_device "
            "dense_to_ragged_batch dense_to_sparse_batch enumerate_dataset from_list get_next_as_optional "
            "get_single_element get_structure group_by_window ignore_errors map_and_batch pad_to_cardinality "
            "parallel_interleave parse_example_dataset prefetch_to_device rejection_resample sample_from_datasets scan "
            "shuffle_and_repeat take_while unbatch unique"
        ),
    },
)
__dir__ = __getattr__.names
