"""`tf.io`: files.

See https://www.tensorflow.org/api_docs/python/tf/io.
"""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_files": "matching_files read_file write_file",
        "_ops._image_files": (
            "decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg decode_png decode_webp encode_jpeg "
            "encode_png extract_jpeg_shape is_jpeg"
        ),
    },
    modules="gfile",
)
__dir__ = __getattr__.names
