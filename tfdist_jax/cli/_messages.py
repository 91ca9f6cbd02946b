"""What the launcher tells the user."""

import sys


def say(message: str) -> None:
    """Tell the user something."""
    print(f"tfdist-jax launch: {message}", file=sys.stderr, flush=True)
