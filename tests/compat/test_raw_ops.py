"""`tf.raw_ops`: numbers are recorded from TensorFlow 2.21, or follow from the formula."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

IMAGE = np.arange(12, dtype="float32").reshape(1, 3, 4, 1)
MOVED = [[1.0, 0.0, -1.5, 0.0, 1.0, 0.5, 0.0, 0.0]]


def project(image, interpolation, fill_mode, matrices=MOVED):
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image,
        transforms=matrices,
        output_shape=[3, 4],
        fill_value=7.0,
        interpolation=interpolation,
        fill_mode=fill_mode,
    )


GRADIENT = [3.5, 3.0, 1.75, 0.0, 10.0, 10.0, 5.5, 0.0, 14.0, 15.0, 7.875, 0.0]
RECORDED = {
    ("NEAREST", "CONSTANT"): [7.0, 7.0, 5.0, 6.0, 7.0, 7.0, 9.0, 10.0, 7.0, 7.0, 7.0, 7.0],
    ("NEAREST", "REFLECT"): [5.0, 4.0, 5.0, 6.0, 9.0, 8.0, 9.0, 10.0, 9.0, 8.0, 9.0, 10.0],
    ("NEAREST", "WRAP"): [7.0, 7.0, 5.0, 6.0, 11.0, 11.0, 9.0, 10.0, 3.0, 3.0, 1.0, 2.0],
    ("NEAREST", "NEAREST"): [4.0, 4.0, 5.0, 6.0, 8.0, 8.0, 9.0, 10.0, 8.0, 8.0, 9.0, 10.0],
    ("BILINEAR", "CONSTANT"): [7.0, 4.5, 2.5, 3.5, 7.0, 6.5, 6.5, 7.5, 7.0, 7.25, 7.75, 8.25],
    ("BILINEAR", "REFLECT"): [2.5, 2.0, 2.5, 3.5, 6.5, 6.0, 6.5, 7.5, 8.5, 8.0, 8.5, 9.5],
    ("BILINEAR", "WRAP"): [4.5, 5.0, 2.5, 3.5, 8.5, 9.0, 6.5, 7.5, 2.5, 3.0, 0.5, 1.5],
    ("BILINEAR", "NEAREST"): [2.0, 2.0, 2.5, 3.5, 6.0, 6.0, 6.5, 7.5, 8.0, 8.0, 8.5, 9.5],
}


@pytest.mark.parametrize(("interpolation", "fill_mode"), RECORDED)
def test_images_are_projected_as_tensorflow_does(interpolation, fill_mode):
    found = project(IMAGE, interpolation, fill_mode).numpy().ravel()
    np.testing.assert_allclose(found, RECORDED[interpolation, fill_mode], rtol=1e-6)


def test_the_gradient_of_a_projection_is_projected_back():
    image = tf.Variable(IMAGE)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(project(image, "BILINEAR", "CONSTANT") ** 2)
    np.testing.assert_allclose(tape.gradient(loss, image).numpy().ravel(), GRADIENT, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interpolation": "CUBIC"}, "`interpolation` must be one of"),
        ({"fill_mode": "constant"}, "`fill_mode` must be one of"),
        ({"images": IMAGE[0]}, "Received shape"),
        ({"transforms": [[1.0, 0.0]]}, "must be \\[1 or 1, 8\\]"),
    ],
)
def test_what_cannot_be_projected_is_an_error(change, message):
    arguments = {"images": IMAGE, "transforms": MOVED, "output_shape": [3, 4], "fill_value": 0.0}
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        tf.raw_ops.ImageProjectiveTransformV3(**{**arguments, "interpolation": "NEAREST", **change})


@pytest.mark.parametrize("use_nesterov", [False, True])
def test_momentum_is_a_step_of_sgd(use_nesterov):
    var, accum, grad = tf.Variable([1.0, 2.0]), tf.Variable([0.5, -0.5]), np.array([1.0, 3.0], "float32")
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=var, accum=accum, lr=0.1, grad=grad, momentum=0.9, use_nesterov=use_nesterov
    )
    step = np.array([0.5, -0.5]) * 0.9 - 0.1 * grad
    np.testing.assert_allclose(accum.numpy(), step, rtol=1e-6)
    changed = step * 0.9 - 0.1 * grad if use_nesterov else step
    np.testing.assert_allclose(var.numpy(), np.array([1.0, 2.0]) + changed, rtol=1e-6)


def test_proximal_adagrad_sets_small_values_to_zero():
    var, accum = tf.Variable([1.0, 0.01]), tf.Variable([3.0, 3.0])
    grad = np.array([1.0, 1.0], "float32")
    tf.raw_ops.ResourceApplyProximalAdagrad(var=var, accum=accum, lr=0.1, l1=0.5, l2=0.1, grad=grad)
    rate = 0.1 / np.sqrt(4.0)
    stepped = np.array([1.0, 0.01]) - rate
    expected = np.sign(stepped) * np.maximum(np.abs(stepped) - 0.5 * rate, 0) / (1 + 0.1 * rate)
    np.testing.assert_allclose(var.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(accum.numpy(), [4.0, 4.0])
