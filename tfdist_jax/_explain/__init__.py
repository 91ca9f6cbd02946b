"""What a compiled step does, read from the program that XLA has made: layouts, memory, collectives, operations."""

from tfdist_jax._explain._assertions import assert_collectives as assert_collectives
from tfdist_jax._explain._explanation import (
    Explanation as Explanation,
    ProgramCosts as ProgramCosts,
    explain as explain,
    read_program as read_program,
)
from tfdist_jax._explain._sections import align as align
