# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._ops._graph_compat import (
    executing_eagerly as executing_eagerly,
)
from tfdist_jax.compat.tensorflow._platform._logging import (
    get_logger as get_logger,
)
from tfdist_jax.compat.tensorflow.compat._values import (
    dimension_value as dimension_value,
)
from tfdist_jax.compat.tensorflow.compat.v1._session_config import (
    ConfigProto as ConfigProto,
    GPUOptions as GPUOptions,
)
from tfdist_jax.compat.tensorflow.compat.v1._switches import (
    assign as assign,
    assign_add as assign_add,
    assign_sub as assign_sub,
    control_flow_v2_enabled as control_flow_v2_enabled,
    disable_eager_execution as disable_eager_execution,
    disable_v2_behavior as disable_v2_behavior,
    enable_control_flow_v2 as enable_control_flow_v2,
    enable_eager_execution as enable_eager_execution,
    enable_resource_variables as enable_resource_variables,
    enable_tensor_equality as enable_tensor_equality,
    enable_v2_behavior as enable_v2_behavior,
    enable_v2_tensorshape as enable_v2_tensorshape,
    executing_eagerly_outside_functions as executing_eagerly_outside_functions,
    resource_variables_enabled as resource_variables_enabled,
)
from tfdist_jax.compat.tensorflow.random._random_state import (
    set_seed as _set_random_seed,
)
from tfdist_jax.compat.tensorflow.compat.v1 import (
    app as app,
    feature_column as feature_column,
    flags as flags,
    gfile as gfile,
    keras as keras,
    logging as logging,
)
set_random_seed = _set_random_seed
