"""`tf.image`: colours, sizes and places."""

import numpy as np
import tensorflow as tf
from _facts import error, show

rng = np.random.RandomState(0)
image = tf.constant(rng.rand(4, 5, 3).astype("f4"))
whole = tf.constant(rng.randint(0, 256, (2, 4, 6, 3)).astype("u1"))
sums = lambda x: [tuple(x.shape), x.dtype.name, float(np.asarray(x, "f8").sum()), float(np.asarray(x, "f8").ravel()[5])]
I = tf.image

for label, result in {
    "to uint8": I.convert_image_dtype(image, tf.uint8),
    "to float": I.convert_image_dtype(whole, tf.float32),
    "to int16": I.convert_image_dtype(whole, tf.int16),
    "to uint8 from uint16": I.convert_image_dtype(tf.constant([[[65535], [256]]], tf.uint16), tf.uint8),
    "saturated": I.convert_image_dtype(image * 3, tf.uint8, saturate=True),
    "brightness": I.adjust_brightness(image, 0.2),
    "brightness of integers": I.adjust_brightness(whole, 0.1),
    "contrast": I.adjust_contrast(image, 2.0),
    "contrast of integers": I.adjust_contrast(whole, 0.5),
    "gamma": I.adjust_gamma(image, 2.0, 0.5),
    "hue": I.adjust_hue(image, 0.3),
    "saturation": I.adjust_saturation(image, 0.5),
    "hsv": I.rgb_to_hsv(image),
    "rgb": I.hsv_to_rgb(image),
    "gray": I.rgb_to_grayscale(image),
    "gray of integers": I.rgb_to_grayscale(whole),
    "from gray": I.grayscale_to_rgb(image[..., :1]),
    "left right": I.flip_left_right(image),
    "up down": I.flip_up_down(whole),
    "rot90": I.rot90(image),
    "rot90 thrice": I.rot90(whole, 3),
    "transpose": I.transpose(image),
    "crop": I.crop_to_bounding_box(whole, 1, 2, 2, 3),
    "pad": I.pad_to_bounding_box(image, 1, 2, 8, 9),
    "central": I.central_crop(whole, 0.5),
    "crop or pad": I.resize_with_crop_or_pad(image, 2, 8),
    "crop or pad odd": I.resize_with_crop_or_pad(whole, 7, 3),
    "standardized": I.per_image_standardization(whole),
    "variation": I.total_variation(tf.stack([image, image * 2])),
    "psnr": I.psnr(image[None], image[None] * 0.9, 1.0),
    "bilinear": I.resize(image, [7, 3]),
    "bilinear of integers": I.resize(whole, (8, 12)),
    "nearest": I.resize(whole, [3, 4], method="nearest"),
    "lanczos": I.resize(image, [9, 9], method=I.ResizeMethod.LANCZOS3),
    "antialiased": I.resize(whole, [2, 3], antialias=True),
    "keeping proportions": I.resize(image, [8, 8], preserve_aspect_ratio=True),
    "with pad": I.resize_with_pad(image, 8, 8),
    "crop and resize": I.crop_and_resize(image[None], [[0.1, 0.2, 0.9, 0.7], [0.0, 0.0, 1.2, 1.0]], [0, 0], [3, 2]),
    "down": I.image_gradients(image[None])[0],
}.items():
    if result.shape.rank == 1 or result.shape.num_elements() < 6:
        show(label, result)
    else:
        show(label, sums(result))
error("two dimensions", lambda: I.flip_left_right(tf.ones([2, 2])))
error("box outside", lambda: I.crop_to_bounding_box(image, 3, 0, 3, 2))
error("does not fit", lambda: I.pad_to_bounding_box(image, 0, 0, 2, 2))
error("fraction", lambda: I.central_crop(image, 1.5))
error("not gray", lambda: I.grayscale_to_rgb(image))
show("random crop", tuple(I.random_crop(image, [2, 2, 3]).shape))
show("flipped or not", bool(tf.reduce_all(I.random_flip_left_right(image) == image) or True))
same = [I.stateless_random_contrast(image, 0.5, 1.5, [1, 2]).numpy().tolist() for _ in range(2)]
show("stateless repeats", same[0] == same[1])
error("bounds", lambda: I.random_contrast(image, 2.0, 1.0))
