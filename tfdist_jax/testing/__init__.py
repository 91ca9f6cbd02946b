"""Faults for the tests of a training, as a pytest plugin: `pytest_plugins = ["tfdist_jax.testing"]` in `conftest.py`.

The fixture `chaos` kills, freezes and slows the processes of a training script, interrupts code at random times or at each place, flips
bits of files and fills disks. What it chooses depends on the test and on `--chaos-seed` only. docs/testing.md has the guide.
"""

try:
    import psutil as psutil
    import pytest as pytest
except ImportError as error:
    raise ImportError(f"tfdist_jax.testing needs {error.name}: pip install 'tfdist-jax[testing]'") from error

from tfdist_jax.testing._chaos import Chaos as Chaos, Moment as Moment
from tfdist_jax.testing._faults import Fault as Fault, FaultKind as FaultKind, slowed as slowed
from tfdist_jax.testing._files import (
    Damage as Damage,
    DamageKind as DamageKind,
    files_in as files_in,
    full_disk as full_disk,
)
from tfdist_jax.testing._interruptions import Interruption as Interruption, interruptions as interruptions
from tfdist_jax.testing._plugin import (
    chaos as chaos,
    pytest_addoption as pytest_addoption,
    pytest_report_header as pytest_report_header,
    pytest_runtest_makereport as pytest_runtest_makereport,
)
from tfdist_jax.testing._training import EndedError as EndedError, StuckError as StuckError, Training as Training
