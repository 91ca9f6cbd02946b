"""`tf.image`.

See https://www.tensorflow.org/api_docs/python/tf/image.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "image._transforms": (
            "adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation central_crop "
            "convert_image_dtype crop_to_bounding_box flip_left_right flip_up_down grayscale_to_rgb hsv_to_rgb "
            "image_gradients pad_to_bounding_box per_image_standardization psnr resize_with_crop_or_pad "
            "rgb_to_grayscale rgb_to_hsv rot90 total_variation transpose"
        ),
        "image._resize": "ResizeMethod crop_and_resize resize resize_with_pad",
        "image._random": (
            "random_brightness random_contrast random_crop random_flip_left_right random_flip_up_down random_hue "
            "random_saturation stateless_random_brightness stateless_random_contrast stateless_random_crop "
            "stateless_random_flip_left_right stateless_random_flip_up_down stateless_random_hue "
            "stateless_random_saturation"
        ),
        "image._quality": (
            "extract_patches rgb_to_yiq rgb_to_yuv sobel_edges ssim ssim_multiscale yiq_to_rgb yuv_to_rgb"
        ),
        "image._boxes": (
            "combined_non_max_suppression draw_bounding_boxes non_max_suppression non_max_suppression_overlaps "
            "non_max_suppression_padded non_max_suppression_with_scores"
        ),
        "image._files": (
            "adjust_jpeg_quality decode_and_crop_jpeg decode_bmp decode_gif decode_image decode_jpeg decode_png "
            "decode_webp encode_jpeg encode_png extract_jpeg_shape is_jpeg"
        ),
    },
)
__dir__ = __getattr__.names
