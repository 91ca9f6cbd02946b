"""Random pipelines of ten transformations: their elements, in order, and where errors come."""

from _facts import show
from _pipelines import make, tell

# The first ones, and some that were wrong once.
for seed in [*range(80), 60178, 60451, 60577, 60956]:
    try:
        dataset, calls = make(seed)
    except (TypeError, ValueError) as error:
        show(f"{seed}", f"raises {type(error).__name__}")
    else:
        show(f"{seed}, {calls[0]}, ..., {calls[-1]}", tell(dataset))
