"""`tf.io`: files.

See https://www.tensorflow.org/api_docs/python/tf/io.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "io._files": "match_filenames_once matching_files read_file write_file",
        "io._csv": "decode_csv",
        "io._decoding": "decode_base64 decode_compressed decode_json_example decode_raw encode_base64",
        "io._tensor_messages": "parse_tensor serialize_tensor",
        "io._sparse_messages": "deserialize_many_sparse serialize_many_sparse serialize_sparse",
        "io._features": "FixedLenFeature FixedLenSequenceFeature SparseFeature VarLenFeature",
        "io._ragged_features": "RaggedFeature",
        "io._parsing": "parse_example parse_single_example",
        "io._sequence_parsing": "parse_sequence_example parse_single_sequence_example",
        "io._record_writer": "TFRecordOptions TFRecordWriter",
        "image._files": (
            "decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg decode_png decode_webp encode_jpeg "
            "encode_png extract_jpeg_shape is_jpeg"
        ),
    },
    modules="gfile",
)
__dir__ = __getattr__.names
