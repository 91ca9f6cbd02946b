"""Bounds that tests hold figures to, and the table of them that is printed after the tests: of each figure, the worst."""

from collections.abc import Callable

import pytest


@pytest.fixture
def bound(record_property) -> Callable[..., None]:
    """Hold a figure to a bound, and note it for the table: `bound("int8 wire bytes / float32", found, 0.27)`."""

    def hold(what: str, found: float, limit: float) -> None:
        record_property("bound", [what, float(found), float(limit)])
        assert found <= limit, f"{what}: {found}, more than {limit}"

    return hold


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, of tests in all processes."""
    figures: dict[tuple[str, float], list[float]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == "bound":
                    what, found, limit = value
                    figures.setdefault((what, limit), []).append(found)
    if figures:
        terminalreporter.section("bounds")
        terminalreporter.write_line(f"{'worst':>10} {'bound':>10} {'figures':>8}  of")
        for (what, limit), found in sorted(figures.items()):
            terminalreporter.write_line(f"{max(found):>10.3g} {limit:>10.3g} {len(found):>8}  {what}")
