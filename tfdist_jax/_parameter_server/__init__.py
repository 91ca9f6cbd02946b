"""Training with parameters on servers: workers compute, without waiting for each other, in rounds, or each for a while by itself."""

from tfdist_jax._parameter_server._gradients import StepResult as StepResult
from tfdist_jax._parameter_server._modes import (
    Asynchronous as Asynchronous,
    LocalSGD as LocalSGD,
    Synchronous as Synchronous,
)
from tfdist_jax._parameter_server._parameter_server import ParameterServer as ParameterServer
