"""What tests of strategies share."""

import jax
import pytest


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield
