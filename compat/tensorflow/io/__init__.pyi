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
from tfdist_jax.compat.tensorflow.io._files import (
    matching_files as matching_files,
    read_file as read_file,
    write_file as write_file,
)
from tfdist_jax.compat.tensorflow.io import (
    gfile as gfile,
)
