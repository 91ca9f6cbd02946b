"""Functions of a batch whose rows are split over replicas, with the results that one device would have for all of its rows."""

from tfdist_jax._global_batch._compression_memory import plan_memory as plan_memory
from tfdist_jax._global_batch._functions import (
    evaluate_globally as evaluate_globally,
    loss_and_aux as loss_and_aux,
    value_and_grad_globally as value_and_grad_globally,
)
from tfdist_jax._global_batch._layer import layer as layer
from tfdist_jax._global_batch._results import Mean as Mean, Rows as Rows, Sum as Sum, unwrap as unwrap
from tfdist_jax._sharding._keys import row_keys as row_keys
