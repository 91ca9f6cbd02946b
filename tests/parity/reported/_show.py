"""What the programs beside this print: a fact a line, a value as its text or the class of an error."""

import signal

_LIMIT_S = 60


def show(name, ask):
    """Print what `ask()` gives, in one line of at most 260 characters; what hangs is an error."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_LIMIT_S)
    try:
        said = " ".join(str(ask()).split())[:260]
    except BaseException as error:
        said = f"RAISED {type(error).__name__} {error}".replace("\n", " ")[:260]
    finally:
        signal.alarm(0)
    print(name, "->", said, flush=True)


def _give_up(*_):
    raise TimeoutError(f"no end within {_LIMIT_S} s")
