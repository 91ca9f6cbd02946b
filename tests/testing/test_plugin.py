"""The plugin, in a pytest of its own."""

import re

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("name", ["a", "b"])
def test_choice(chaos, name):
    print("chosen", name, chaos.random.random())

def test_failing(chaos, tmp_path):
    (tmp_path / "file").write_text("x" * 100)
    for _ in range(30):
        chaos.damage(tmp_path / "file", "flip")
    assert False

def test_failing_without(tmp_path):
    assert False
"""


@pytest.fixture
def run_tests(run_script, tmp_path):
    def run(*args):
        (tmp_path / "conftest.py").write_text('pytest_plugins = ["tfdist_jax.testing"]\n')
        (tmp_path / "test_it.py").write_text(TESTS)
        return run_script(
            tmp_path / "test_it.py", *args, runner=("-m", "pytest", "-p", "no:cacheprovider", "-W", "error")
        )

    return run


def chosen(ran):
    return re.findall(r"chosen (\w) (\S+)", ran.stdout)


def test_a_seed_and_a_test_choose(run_tests):
    first, again, other = run_tests("-s"), run_tests("-s", "-k", "choice"), run_tests("-s", "--chaos-seed", "7")
    assert len(chosen(first)) == 2 and len(dict(map(reversed, chosen(first)))) == 2
    assert chosen(first) == chosen(again)
    assert not set(chosen(first)) & set(chosen(other))
    assert "tfdist_jax: --chaos-seed 0" in first.stdout and "tfdist_jax: --chaos-seed 7" in other.stdout


def test_the_report_of_a_failed_test_says_what_had_happened_and_how_it_does_again(run_tests):
    ran = run_tests("--chaos-seed", "3")
    assert ran.returncode == 1 and "2 failed, 2 passed" in ran.stdout
    reports = re.split(r"_{5,} test_failing\w* _{5,}", ran.stdout)[1:]
    assert re.search(
        r"-+ chaos -+\n\.\.\. 10 before\n(flip .*/file\n){20}`--chaos-seed 3` chooses the same again\.", reports[0]
    )
    assert "chaos-seed" not in reports[1]


def test_what_is_missing_is_named(run_script):
    program = "import sys\nsys.modules['psutil'] = None\nimport tfdist_jax.testing"
    ran = run_script(program)
    assert (
        ran.returncode
        and "ImportError: tfdist_jax.testing needs psutil: pip install 'tfdist-jax[testing]'" in ran.stderr
    )
