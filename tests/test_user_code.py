"""Which lines are the user's own."""

import sys
from types import SimpleNamespace

from tfdist_jax._user_code import user_line


def where(frame=None):
    return user_line(sys._getframe())


def test_the_innermost_line_of_a_program_is_named_with_its_text():
    path, _, rest = where().rpartition(":")
    assert path == __file__
    assert rest.endswith("(`return user_line(sys._getframe())`)")


def test_a_library_is_passed_over():
    found = {}
    exec(
        compile("def call(fn):\n    found['line'] = user_line(sys._getframe())", "/x/site-packages/thing.py", "exec"),
        {"found": found, "user_line": user_line, "sys": sys},
        names := {},
    )
    names["call"](None)
    assert "names[" in found["line"]


def test_code_without_a_program_has_no_line():
    assert user_line(None) == ""


def test_a_frame_may_be_between_lines():
    frame = SimpleNamespace(f_code=SimpleNamespace(co_filename="/home/me/train.py"), f_lineno=None, f_back=None)
    assert user_line(frame) == "/home/me/train.py:0"
