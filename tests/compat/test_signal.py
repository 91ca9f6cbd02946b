"""`tf.signal`: what TensorFlow itself cannot compute on a processor, and functions that know no sizes."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

CUBE = np.random.default_rng(0).normal(size=(3, 4, 5))


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_transforms_over_axes_of_choice_are_numpys(norm):
    complex_cube = (CUBE + 1j * CUBE[::-1]).astype("complex64")
    same = lambda ours, wanted: np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)
    over = {"axes": [0, 2], "norm": norm}
    same(tf.signal.fftnd(complex_cube, **over), np.fft.fftn(complex_cube, **over))
    same(tf.signal.ifftnd(complex_cube, [4, 6], **over), np.fft.ifftn(complex_cube, [4, 6], **over))
    same(tf.signal.rfftnd(CUBE, [2, 7], **over), np.fft.rfftn(CUBE, [2, 7], **over))
    same(tf.signal.irfftnd(complex_cube, [3, 8], **over), np.fft.irfftn(complex_cube, [3, 8], **over))
    same(tf.signal.irfftnd(complex_cube), np.fft.irfftn(complex_cube))


def test_transforms_over_axes_of_choice_say_what_they_need():
    with pytest.raises(ValueError, match="ortho"):
        tf.signal.fftnd(CUBE + 0j, norm="other")
    with pytest.raises(ValueError, match="complex64 or complex128"):
        tf.signal.fftnd(tf.constant(CUBE))


def test_function_of_a_length_that_is_traced_runs_as_python():
    @tf.function
    def spectrum(length):
        return tf.signal.stft(tf.ones([32]), length, 4)

    assert spectrum(tf.constant(8)).shape.as_list() == [7, 5]
    assert spectrum(8).shape.as_list() == [7, 5]
