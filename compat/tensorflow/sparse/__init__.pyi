# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._ops._segments import (
    sparse_segment_mean as _segment_mean,
    sparse_segment_sqrt_n as _segment_sqrt_n,
    sparse_segment_sum as _segment_sum,
)
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import (
    SparseTensor as SparseTensor,
)
from tfdist_jax.compat.tensorflow.sparse._arithmetic import (
    concat as concat,
    expand_dims as expand_dims,
    eye as eye,
    map_values as map_values,
    reduce_max as reduce_max,
    reduce_sum as reduce_sum,
    reorder as reorder,
    reshape as reshape,
    sampled_addmm as sampled_addmm,
    softmax as softmax,
    sparse_dense_matmul as sparse_dense_matmul,
    to_dense as to_dense,
    to_indicator as to_indicator,
    transpose as transpose,
)
from tfdist_jax.compat.tensorflow.sparse._crossing import (
    cross as cross,
    cross_hashed as cross_hashed,
)
from tfdist_jax.compat.tensorflow.sparse._selection import (
    add as add,
    bincount as bincount,
    fill_empty_rows as fill_empty_rows,
    from_dense as from_dense,
    mask as mask,
    maximum as maximum,
    minimum as minimum,
    reset_shape as reset_shape,
    retain as retain,
    slice as slice,
    split as split,
)
segment_mean = _segment_mean
segment_sqrt_n = _segment_sqrt_n
segment_sum = _segment_sum
