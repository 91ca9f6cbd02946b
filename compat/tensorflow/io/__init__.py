"""`tf.io`: files.

See https://www.tensorflow.org/api_docs/python/tf/io.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "io._files": "matching_files read_file write_file",
        "image._files": (
            "decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg decode_png decode_webp encode_jpeg "
            "encode_png extract_jpeg_shape is_jpeg"
        ),
    },
    modules="gfile",
)
__dir__ = __getattr__.names
