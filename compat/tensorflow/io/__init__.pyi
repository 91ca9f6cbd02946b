# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.image._files import (
    decode_and_crop_jpeg as decode_and_crop_jpeg,
    decode_bmp as decode_bmp,
    decode_gif as decode_gif,
    decode_image as decode_image,
    decode_jpeg as decode_jpeg,
    decode_png as decode_png,
    decode_webp as decode_webp,
    encode_jpeg as encode_jpeg,
    encode_png as encode_png,
    extract_jpeg_shape as extract_jpeg_shape,
    is_jpeg as is_jpeg,
)
from tfdist_jax.compat.tensorflow.io._csv import (
    decode_csv as decode_csv,
)
from tfdist_jax.compat.tensorflow.io._decoding import (
    decode_base64 as decode_base64,
    decode_compressed as decode_compressed,
    decode_json_example as decode_json_example,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
)
from tfdist_jax.compat.tensorflow.io._features import (
    FixedLenFeature as FixedLenFeature,
    FixedLenSequenceFeature as FixedLenSequenceFeature,
    SparseFeature as SparseFeature,
    VarLenFeature as VarLenFeature,
)
from tfdist_jax.compat.tensorflow.io._files import (
    match_filenames_once as match_filenames_once,
    matching_files as matching_files,
    read_file as read_file,
    write_file as write_file,
)
from tfdist_jax.compat.tensorflow.io._parsing import (
    parse_example as parse_example,
    parse_single_example as parse_single_example,
)
from tfdist_jax.compat.tensorflow.io._ragged_features import (
    RaggedFeature as RaggedFeature,
)
from tfdist_jax.compat.tensorflow.io._record_writer import (
    TFRecordOptions as TFRecordOptions,
    TFRecordWriter as TFRecordWriter,
)
from tfdist_jax.compat.tensorflow.io._sequence_parsing import (
    parse_sequence_example as parse_sequence_example,
    parse_single_sequence_example as parse_single_sequence_example,
)
from tfdist_jax.compat.tensorflow.io._sparse_messages import (
    deserialize_many_sparse as deserialize_many_sparse,
    serialize_many_sparse as serialize_many_sparse,
    serialize_sparse as serialize_sparse,
)
from tfdist_jax.compat.tensorflow.io._tensor_messages import (
    parse_tensor as parse_tensor,
    serialize_tensor as serialize_tensor,
)
from tfdist_jax.compat.tensorflow.io import (
    gfile as gfile,
)
