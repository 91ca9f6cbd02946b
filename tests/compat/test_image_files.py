"""Images from and to files: formats that TensorFlow's recorded program does not have, and what is refused."""

import io
import sys

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

Image = pytest.importorskip("PIL.Image")
PICTURE = np.arange(4 * 6 * 3, dtype="u1").reshape(4, 6, 3)


def written(kind, *frames, **options):
    first, *rest = (Image.fromarray(frame) for frame in frames)
    with io.BytesIO() as file:
        first.save(file, kind, **({"save_all": True, "append_images": rest} if rest else {}), **options)
        return file.getvalue()


def test_other_formats_are_decoded():
    np.testing.assert_array_equal(tf.io.decode_bmp(written("BMP", PICTURE)), PICTURE)
    np.testing.assert_array_equal(tf.io.decode_image(written("BMP", PICTURE)), PICTURE)
    np.testing.assert_array_equal(tf.image.decode_webp(written("WEBP", PICTURE, lossless=True)), PICTURE)


def test_animations_give_all_frames_or_the_first():
    gif = written("GIF", np.zeros((4, 6, 3), "u1"), np.full((4, 6, 3), 255, "u1"))
    frames = tf.io.decode_gif(gif)
    assert frames.shape == (2, 4, 6, 3) and frames[0].numpy().max() == 0 and frames[1].numpy().min() == 255
    assert tf.io.decode_image(gif).shape == (2, 4, 6, 3)
    assert tf.io.decode_image(gif, expand_animations=False).shape == (4, 6, 3)


def test_palettes_become_colours():
    with io.BytesIO() as file:
        Image.fromarray(PICTURE).convert("P", palette=Image.Palette.ADAPTIVE).save(file, "PNG")
        np.testing.assert_array_equal(tf.io.decode_png(file.getvalue()), PICTURE)


def test_functions_refuse_to_make_bytes():
    with pytest.raises(NotImplementedError, match="outside of the function"):
        tf.function(tf.io.encode_png)(tf.constant(PICTURE))


def test_colours_of_16_bits_are_refused():
    header = b"\x89PNG\r\n\x1a\n" + bytes(16) + b"\x10"
    assert header[24] == 16
    with pytest.raises(NotImplementedError, match="one channel only"):
        tf.io.encode_png(PICTURE.astype("u2"))


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pillow"):
        tf.io.decode_png(b"")


def test_dataset_reads_files(tmp_path):
    for i in range(3):
        tf.io.write_file(str(tmp_path / f"{i}.png"), tf.io.encode_png(PICTURE + i))
    paths = sorted(str(path) for path in tmp_path.iterdir())
    pictures = [tf.io.decode_png(tf.io.read_file(path)) for path in tf.data.Dataset.from_tensor_slices(paths)]
    np.testing.assert_array_equal(pictures[2], PICTURE + 2)


def test_non_max_suppression_in_a_function_names_the_one_that_works():
    boxes, scores = tf.constant([[0.0, 0.0, 1.0, 1.0]]), tf.constant([1.0])
    with pytest.raises(NotImplementedError, match="non_max_suppression_padded"):
        tf.function(lambda b, s: tf.image.non_max_suppression(b, s, 1))(boxes, scores)
