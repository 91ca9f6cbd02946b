"""`tf.compat`: strings and bytes, and names of other versions.

See https://www.tensorflow.org/api_docs/python/tf/compat.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "compat._values": (
            "as_bytes as_str as_str_any as_text bytes_or_text_types complex_types dimension_value forward_compatible "
            "integral_types path_to_str real_types"
        ),
    },
    modules="v1 v2",
)
__dir__ = __getattr__.names
