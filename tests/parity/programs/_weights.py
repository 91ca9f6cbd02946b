"""Weights that do not depend on who draws random numbers."""

import numpy as np


def settle(model, seed):
    """Give a model's weights values that follow from `seed`; statistics and scales of normalization stay as they are."""
    draw = np.random.RandomState(seed)
    for weight in model.weights:
        if not any(name in weight.path for name in ("seed", "moving", "gamma")):
            weight.assign(np.asarray(draw.randn(*weight.shape) * 0.3, "float32"))
