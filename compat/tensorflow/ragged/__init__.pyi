# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.ragged._broadcasting import (
    map_flat_values as map_flat_values,
)
from tfdist_jax.compat.tensorflow.ragged._crossing import (
    cross as cross,
    cross_hashed as cross_hashed,
)
from tfdist_jax.compat.tensorflow.ragged._joining import (
    stack as stack,
)
from tfdist_jax.compat.tensorflow.ragged._making import (
    constant as constant,
    make_range as _range,
    row_splits_to_segment_ids as row_splits_to_segment_ids,
    segment_ids_to_row_splits as segment_ids_to_row_splits,
)
from tfdist_jax.compat.tensorflow.ragged._selection import (
    boolean_mask as boolean_mask,
    stack_dynamic_partitions as stack_dynamic_partitions,
)
range = _range
