"""`python -m tfdist_jax` is the command `tfdist-jax`."""

import sys

from tfdist_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
