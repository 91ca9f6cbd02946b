"""`tf.keras.optimizers.legacy` against the numbers of TensorFlow's Keras 2 (tf_keras 2.21), recorded."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

START = [1.0, -2.0, 0.5, 3.0]
GRADIENTS = [[0.3, -0.001, 2.0, 0.0], [-0.1, 0.002, 1e-4, 1.0], [0.5, -0.001, 0.0, -1.0]]
# Name, options beside a learning rate of 0.1, and the variable after the three steps.
RECORDED = [
    ("SGD", {}, [0.93000001, -1.9999999, 0.29999, 3.0]),
    ("SGD", {"momentum": 0.9}, [0.88770002, -2.0000091, -0.042018965, 2.9100001]),
    ("SGD", {"momentum": 0.9, "nesterov": True, "decay": 0.1}, [0.8422997, -1.9999905, -0.18782459, 2.9119697]),
    ("Adam", {}, [0.78945035, -1.9366132, 0.2811923, 2.930105]),
    ("Adam", {"amsgrad": True, "epsilon": 0.001, "decay": 0.1}, [0.82066959, -1.9991168, 0.29916596, 2.938108]),
    ("Adamax", {}, [0.82195377, -1.9287713, 0.32263073, 2.9510584]),
    ("Nadam", {}, [0.82391912, -1.9422077, 0.38145077, 2.9701512]),
    ("Nadam", {"schedule_decay": 0.1}, [0.82418364, -1.9422053, 0.38118726, 2.9698608]),
    ("Adadelta", {}, [0.99974525, -1.9999686, 0.49985859, 3.0000019]),
    ("Adagrad", {}, [0.87900037, -1.9999999, 0.40122208, 2.9736602]),
    ("Adagrad", {"epsilon": 0.01}, [0.88114965, -2.0, 0.40170753, 2.974088]),
    ("RMSprop", {}, [0.51414913, -1.8336072, 0.18375567, 2.913188]),
    ("RMSprop", {"epsilon": 0.01}, [0.54863811, -1.9996833, 0.18867803, 2.9177363]),
    ("RMSprop", {"epsilon": 0.01, "centered": True}, [0.51861691, -1.999683, 0.17211401, 2.9017477]),
    ("RMSprop", {"epsilon": 0.01, "momentum": 0.9}, [0.30707657, -2.0000899, -0.34649295, 2.6507354]),
    ("RMSprop", {"epsilon": 0.01, "momentum": 0.9, "centered": True}, [0.28080738, -2.0000899, -0.39107507, 2.6228302]),
    ("Ftrl", {}, [0.15352412, -9.9849913e-06, 0.3231352, -0.026339706]),
    (
        "Ftrl",
        {"l1_regularization_strength": 0.1, "l2_regularization_strength": 0.2, "beta": 0.1},
        [0.093692392, 0.0, 0.2976189, -0.012778825],
    ),
    ("Ftrl", {"l2_shrinkage_regularization_strength": 0.1}, [0.09527541, 0.11098943, 0.31194174, -0.20857364]),
]


def make(name, options):
    return getattr(tf.keras.optimizers.legacy, name)(0.1, **options)


@pytest.mark.parametrize(("name", "options", "expected"), RECORDED)
@pytest.mark.parametrize("kind", [tf.keras.Variable, tf.Variable], ids=["keras", "tf"])
def test_steps_are_those_of_keras_2(kind, name, options, expected):
    variable, optimizer = kind(START), make(name, options)
    for gradient in GRADIENTS:
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    np.testing.assert_allclose(variable.numpy(), expected, atol=2e-6)


def test_decay_is_of_the_step_and_leaves_the_learning_rate():
    variable, optimizer = tf.keras.Variable(1.0), make("SGD", {"decay": 1.0})
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert float(variable.numpy()) == pytest.approx(1 - 0.1 - 0.1 / 2)
    assert float(optimizer.lr.numpy()) == float(optimizer.learning_rate.numpy()) == pytest.approx(0.1)
    tf.keras.backend.set_value(optimizer.lr, 0.3)
    optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert float(variable.numpy()) == pytest.approx(0.85 - 0.3 / 3)


@pytest.mark.parametrize("name", ["Adagrad", "RMSprop", "Nadam"])
def test_changed_formulas_train_replicas_as_one_device(name, strategy, make_model, fit, data, assert_same_training):
    optimizer = lambda: make(name, {"epsilon": 0.01})
    model, alone = make_model(strategy, optimizer=optimizer), make_model(optimizer=optimizer)
    assert_same_training(model, fit(model, data), alone, fit(alone, data), atol=1e-4)
