"""`tf.summary`: event files for TensorBoard, written without TensorFlow.

See https://www.tensorflow.org/api_docs/python/tf/summary.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "summary._writer": "SummaryWriter create_file_writer create_noop_writer flush",
        "summary._recording": "record_if should_record_summaries",
        "summary._kinds": "audio histogram image scalar text write",
        "summary._trace": "graph trace_export trace_off trace_on",
    },
    modules="experimental",
)
__dir__ = __getattr__.names
