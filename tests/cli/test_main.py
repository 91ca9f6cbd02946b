import importlib.metadata

import pytest

from tfdist_jax.cli import main


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"tfdist-jax {importlib.metadata.version('tfdist-jax')}\n"


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "run a TensorFlow program on JAX" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["walk"], ["--walk"], ["run"], ["run", "--fast", "x.py"]])
def test_wrong_usage_is_shown(argv, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "usage: tfdist-jax" in capsys.readouterr().err


def test_module_is_the_same_command(run_script):
    ran = run_script("", runner=("-m", "tfdist_jax", "--version"))
    assert ran.stdout.startswith("tfdist-jax ")
