# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.strings._characters import (
    length as length,
    lower as lower,
    strip as strip,
    substr as substr,
    upper as upper,
)
from tfdist_jax.compat.tensorflow.strings._format import (
    format as format,
)
from tfdist_jax.compat.tensorflow.strings._hashing import (
    to_hash_bucket as to_hash_bucket,
    to_hash_bucket_fast as to_hash_bucket_fast,
    to_hash_bucket_strong as to_hash_bucket_strong,
)
from tfdist_jax.compat.tensorflow.strings._joining import (
    join as join,
    reduce_join as reduce_join,
    unsorted_segment_join as unsorted_segment_join,
)
from tfdist_jax.compat.tensorflow.strings._numbers import (
    as_string as as_string,
    to_number as to_number,
)
from tfdist_jax.compat.tensorflow.strings._patterns import (
    regex_full_match as regex_full_match,
    regex_replace as regex_replace,
)
from tfdist_jax.compat.tensorflow.strings._scripts import (
    unicode_script as unicode_script,
)
from tfdist_jax.compat.tensorflow.strings._splitting import (
    bytes_split as bytes_split,
    ngrams as ngrams,
    split as split,
)
from tfdist_jax.compat.tensorflow.strings._unicode import (
    unicode_decode as unicode_decode,
    unicode_decode_with_offsets as unicode_decode_with_offsets,
    unicode_encode as unicode_encode,
    unicode_split as unicode_split,
    unicode_split_with_offsets as unicode_split_with_offsets,
    unicode_transcode as unicode_transcode,
)
