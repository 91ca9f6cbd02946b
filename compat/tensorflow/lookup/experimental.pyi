# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.lookup._mutable_tables import (
    DenseHashTable as DenseHashTable,
    MutableHashTable as MutableHashTable,
)
