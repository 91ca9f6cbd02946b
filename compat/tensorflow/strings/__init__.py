"""`tf.strings`: what is computed of strings, on the host.

See https://www.tensorflow.org/api_docs/python/tf/strings.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "strings._characters": "length lower strip substr upper",
        "strings._joining": "join reduce_join unsorted_segment_join",
        "strings._patterns": "regex_full_match regex_replace",
        "strings._numbers": "as_string to_number",
        "strings._format": "format",
        "strings._hashing": "to_hash_bucket to_hash_bucket_fast to_hash_bucket_strong",
        "strings._scripts": "unicode_script",
        "strings._splitting": "bytes_split ngrams split",
        "strings._unicode": (
            "unicode_decode unicode_decode_with_offsets unicode_encode unicode_split unicode_split_with_offsets "
            "unicode_transcode"
        ),
    },
)
__dir__ = __getattr__.names
