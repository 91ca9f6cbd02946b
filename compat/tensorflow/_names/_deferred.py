"""Stand-ins for names of TensorFlow that are not there, for libraries that mention them before anybody uses them."""

import functools
from typing import Any, NoReturn, final


@final
class _Deferred(type):
    """The type of stand-ins: classes, so that they may be annotations, bases and what `isinstance` asks for; nothing is one of them.

    Attributes:
        _text: Why the name is not there, and what to use.
    """

    _text: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to make or compute anything.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(cls._text)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"`{cls.__name__}` has no attribute {name!r}")
        return make_deferred(f"{cls.__name__}.{name}", cls._text)

    def __repr__(cls) -> str:
        return f"<{cls.__name__}, which is not there>"


@functools.cache
def make_deferred(name: str, text: str) -> Any:
    """Return what stands for a dotted name, and the names below it, until it is called: that raises an error with this text."""
    return _Deferred(name, (), {"_text": text, "__doc__": text})
