"""The fixture, its option, and what a failed test's report says."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tfdist_jax.testing._chaos import Chaos

_SEED = "--chaos-seed"
_SHOWN = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the seed."""
    group = parser.getgroup("tfdist_jax")
    group.addoption(_SEED, type=int, default=0, metavar="N", help="chooses the faults of all tests (default: 0)")


def pytest_report_header(config: pytest.Config) -> str:
    """Name the seed."""
    return f"tfdist_jax: {_SEED} {config.getoption(_SEED)}"


@pytest.fixture
def chaos(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Chaos]:
    """Faults of all kinds, chosen by the test's name and `--chaos-seed`; trainings that it has launched end with the test."""
    with Chaos(f"{request.config.getoption(_SEED)}/{request.node.nodeid}", tmp_path) as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Say in a failed test's report what had happened, and how it happens again."""
    report = yield
    made = getattr(item, "funcargs", {}).get("chaos")
    if report.when == "call" and report.failed and isinstance(made, Chaos):
        again = f"`{_SEED} {item.config.getoption(_SEED)}` chooses the same again."
        earlier = len(made.happened) - _SHOWN
        first = [f"... {earlier} before"] if earlier > 0 else []
        report.sections.append(("chaos", "\n".join([*first, *made.happened[-_SHOWN:], again])))
    return report
