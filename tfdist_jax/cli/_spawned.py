"""`__main__` of a process that a running program has spawned: the program once more, as `__mp_main__`.

`multiprocessing` imports the parent's main module in the child, to find there what it unpickles. Here this module
stands in for it, so that the child sees the facade too.
"""

import sys

from tfdist_jax import _compilation_cache
from tfdist_jax.cli._program import Program
from tfdist_jax.compat import _alias

if __name__ == "__mp_main__":
    _compilation_cache.enable()
    _alias.install()
    Program.of_parent().run(sys.modules[__name__])
