"""Which mesh to train a model on: predictions from a few compiled programs, for devices that need not be there."""

from tfdist_jax._plan._plan import Plan as Plan, PlannedMesh as PlannedMesh, make_plan as make_plan, plan as plan
from tfdist_jax._plan._training import Training as Training
