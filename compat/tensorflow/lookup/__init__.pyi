# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.lookup._initializers import (
    KeyValueTensorInitializer as KeyValueTensorInitializer,
    TextFileIndex as TextFileIndex,
    TextFileInitializer as TextFileInitializer,
)
from tfdist_jax.compat.tensorflow.lookup._static_tables import (
    StaticHashTable as StaticHashTable,
    StaticVocabularyTable as StaticVocabularyTable,
)
from tfdist_jax.compat.tensorflow.lookup import (
    experimental as experimental,
)
