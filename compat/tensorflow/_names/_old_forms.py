"""Forms of earlier TensorFlow 2 and Keras 2 that a program is written in: each is told once, in one line."""

import logging
import sys

from tfdist_jax._user_code import user_line

_log = logging.getLogger("tfdist_jax")
_told: set[str] = set()


def tell_old_form(form: str, today: str, kind: str = "") -> None:
    """Log, the first time that a form is met, which it is, in which line, and how it is written today; of forms of one kind, the first."""
    if (kind or form) in _told:
        return
    _told.add(kind or form)
    line = user_line(sys._getframe(1))
    _log.warning("Old form, understood: %s%s. Today: %s.", form, f" in {line}" if line else "", today)


def tell_without_effect(name: str, why: str) -> None:
    """Log, the first time, that what a program sets has no effect here, and why."""
    if name not in _told:
        _told.add(name)
        _log.info("%s has no effect: %s.", name, why)
