"""`tf.summary.experimental`: the step that summaries get by default, and names.

See https://www.tensorflow.org/api_docs/python/tf/summary/experimental.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "summary._recording": "get_step set_step",
        "summary._kinds": "summary_scope",
    },
)
__dir__ = __getattr__.names
