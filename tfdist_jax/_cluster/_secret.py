"""A secret that the processes of a program share: who does not know it does not take part.

It is never sent. Each end gives the other one a number that it has not seen before, and gets back what only the secret makes
of both numbers.
"""

import hmac
import os
import secrets
from collections.abc import Mapping

SECRET = "TFDIST_CLUSTER_SECRET"
"""Any text, the same for all processes; `tfdist-jax launch --workers` makes one for each start."""


def make_secret() -> str:
    """Return a new secret."""
    return secrets.token_hex(32)


def make_nonce() -> str:
    """Return a number, as text, that nobody has used before."""
    return secrets.token_hex(16)


def has_secret() -> bool:
    """Whether this process has a secret to share."""
    return bool(os.environ.get(SECRET))


def prove(role: str, own: str, other: str) -> str:
    """Return what shows that this process knows the secret.

    Args:
        role: As whom it speaks, so that nobody can send back what he has got.
        own: Its number.
        other: The other end's.
    """
    return hmac.new(os.environ[SECRET].encode(), f"{role} {own} {other}".encode(), "sha256").hexdigest()


def is_proof(message: Mapping[str, object], role: str, other: str, own: str) -> bool:
    """Tell whether a message shows that the other end, as `role`, knows the secret; `other` is its number."""
    return hmac.compare_digest(str(message.get("proof")).encode(), prove(role, other, own).encode())
