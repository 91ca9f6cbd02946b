"""`python -m tfdist_jax` does as `tfdist-jax`."""

import sys

from tfdist_jax.cli import main

sys.exit(main())
