# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.compat._values import (
    as_bytes as as_bytes,
    as_str as as_str,
    as_str_any as as_str_any,
    as_text as as_text,
    bytes_or_text_types as bytes_or_text_types,
    complex_types as complex_types,
    dimension_value as dimension_value,
    forward_compatible as forward_compatible,
    integral_types as integral_types,
    path_to_str as path_to_str,
    real_types as real_types,
)
from tfdist_jax.compat.tensorflow.compat import (
    v1 as v1,
    v2 as v2,
)
