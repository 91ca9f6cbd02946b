"""Images as bytes of files, also in a dataset's functions; boxes and similarity in functions."""

import numpy as np
import tensorflow as tf
from _facts import error, show

y, x = np.mgrid[:20, :30]
picture = np.stack([127 + 100 * np.sin(x / 7.0), x * 8, y * 12], -1).astype("u1")
png = tf.io.encode_png(picture)
jpeg = tf.io.encode_jpeg(picture, quality=90)
same = lambda decoded, wanted: [decoded.dtype.name, decoded.shape.as_list(), bool((decoded.numpy() == wanted).all())]

for channels in (1, 2, 3, 4):
    part = np.concatenate([picture, picture[..., :1]], -1)[..., :channels]
    show(f"png of {channels}", same(tf.io.decode_png(tf.io.encode_png(part)), part))
wide = picture[..., :1].astype("u2") * 200
show("png of 16 bits", same(tf.io.decode_png(tf.io.encode_png(wide), dtype=tf.uint16), wide))
show("png of 16 bits as 8", same(tf.io.decode_png(tf.io.encode_png(wide)), wide >> 8))
show("8 bits as 16", same(tf.io.decode_png(png, dtype=tf.uint16), picture.astype("u2") * 257))
show("with alpha", same(tf.image.decode_png(png, channels=4), np.concatenate([picture, np.full((20, 30, 1), 255)], -1)))
show("png by decode_image", same(tf.io.decode_image(png), picture))
show("png by decode_jpeg", same(tf.io.decode_jpeg(png), picture))
show(
    "floats",
    [tf.io.decode_image(png, dtype=tf.float32).dtype.name, float(tf.io.decode_image(png, dtype=tf.float32)[0, 0, 0])],
)
show("compressed", same(tf.image.decode_png(tf.image.encode_png(picture, compression=9)), picture))
show("several", [same(tf.io.decode_png(one), picture) for one in tf.io.encode_png(np.stack([picture, picture]))])
near = lambda decoded, wanted, limit: [
    decoded.shape.as_list(),
    bool(np.abs(decoded.numpy().astype(int) - wanted).max() < limit),
]
show("jpeg", near(tf.io.decode_jpeg(jpeg), picture, 60))
show("jpeg, gray", tf.io.decode_jpeg(jpeg, channels=1).shape.as_list())
show("jpeg, smaller", tf.io.decode_jpeg(jpeg, ratio=2).shape.as_list())
show("jpeg, a part", tf.io.decode_and_crop_jpeg(jpeg, [2, 3, 10, 11]).shape.as_list())
show("jpeg's shape", [tf.io.extract_jpeg_shape(jpeg), tf.io.is_jpeg(jpeg), tf.io.is_jpeg(png)])
show("quality", near(tf.image.adjust_jpeg_quality(picture, 95), picture, 60))
show("quality of floats", tf.image.adjust_jpeg_quality(picture / np.float32(255), 40).dtype.name)

tf.io.write_file("picture.png", png)
show("from a file", same(tf.io.decode_image(tf.io.read_file("picture.png")), picture))
error("no image", lambda: tf.io.decode_png(b"text"))
error("channels", lambda: tf.io.decode_jpeg(jpeg, channels=5))
error("part outside", lambda: tf.io.decode_and_crop_jpeg(jpeg, [2, 3, 100, 11]))
error("encode floats", lambda: tf.io.encode_png(tf.ones([2, 2, 3])))
error("encode a matrix", lambda: tf.io.encode_jpeg(tf.ones([2, 2], tf.uint8)))

boxes = tf.constant([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.45], [0.5, 0.5, 1.0, 1.0], [0.1, 0.0, 0.6, 0.5]])
scores = tf.constant([0.5, 0.9, 0.3, 0.6])
keep = tf.function(lambda b, s: tf.image.non_max_suppression_padded(b, s, 4, 0.5, pad_to_max_output_size=True))
show("boxes in a function", keep(boxes, scores))
show("boxes", tf.image.non_max_suppression(boxes, scores, 4, 0.5))
one = tf.constant(picture / np.float32(255))
variable = tf.Variable(one * 0.5)
with tf.GradientTape() as tape:
    likeness = tf.image.ssim(one, variable, 1.0)
show("gradient of ssim", [likeness, tf.reduce_mean(tape.gradient(likeness, variable), [0, 1])])
