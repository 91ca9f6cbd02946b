"""The command line: `tfdist-jax COMMAND`."""

from tfdist_jax.cli._main import main as main
