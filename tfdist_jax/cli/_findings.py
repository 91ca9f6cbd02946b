"""What `tfdist-jax doctor` finds."""

from typing import final


@final
class Findings:
    """Prints what is found, and counts what is wrong."""

    def __init__(self) -> None:
        """Begin."""
        self.problems = 0

    def good(self, message: str) -> None:
        """Say what is right."""
        print(f"ok       {message}", flush=True)

    def odd(self, message: str) -> None:
        """Say what may be wrong."""
        print(f"look     {message}", flush=True)

    def bad(self, message: str) -> None:
        """Say what is wrong."""
        self.problems += 1
        print(f"PROBLEM  {message}", flush=True)
