# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._tensors._nest import (
    assert_same_structure as assert_same_structure,
    flatten as flatten,
    is_nested as is_nested,
    map_structure as map_structure,
    pack_sequence_as as pack_sequence_as,
)
