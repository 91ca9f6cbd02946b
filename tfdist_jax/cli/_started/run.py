"""`tfdist-jax run` in the processes of `tfdist-jax launch`, alone in its folder: Python looks there first for every module."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("tfdist_jax") is None:  # The launcher has found it in its working directory.
    sys.path.append(str(Path(__file__).parents[3]))

from tfdist_jax.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
