"""What tests of strategies share."""

import functools

import jax
import pytest

from tests.shared.staged_models import check_like_one_device


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def check(bound):
    """Returns a function that requires of a strategy that it computes a loss as one device does."""
    return functools.partial(check_like_one_device, bound)
