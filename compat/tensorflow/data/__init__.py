"""`tf.data`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "data._dataset": "Dataset",
        "data._elements": "DatasetSpec",
        "data._file_datasets": "FixedLengthRecordDataset TFRecordDataset TextLineDataset",
        "data._iterator": "Iterator=DatasetIterator NumpyIterator",
        "data._options": "AUTOTUNE Options ThreadingOptions",
        "data._plan": "INFINITE_CARDINALITY=INFINITE UNKNOWN_CARDINALITY=UNKNOWN",
    },
    modules="experimental",
)
__dir__ = __getattr__.names
