# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._functions._function import (
    function as function,
    init_scope as init_scope,
)
from tfdist_jax.compat.tensorflow._gradients._custom_gradient import (
    custom_gradient as custom_gradient,
    grad_pass_through as grad_pass_through,
    recompute_grad as recompute_grad,
    stop_gradient as stop_gradient,
)
from tfdist_jax.compat.tensorflow._gradients._gradient_tape import (
    GradientTape as GradientTape,
    UnconnectedGradients as UnconnectedGradients,
)
from tfdist_jax.compat.tensorflow._gradients._graph_gradients import (
    AggregationMethod as AggregationMethod,
    gradients as gradients,
    hessians as hessians,
)
from tfdist_jax.compat.tensorflow._gradients._registered_gradients import (
    RegisterGradient as RegisterGradient,
    no_gradient as no_gradient,
)
from tfdist_jax.compat.tensorflow._ops._assertions import (
    Assert as Assert,
    assert_equal as assert_equal,
    assert_greater as assert_greater,
    assert_less as assert_less,
    assert_rank as assert_rank,
)
from tfdist_jax.compat.tensorflow._ops._binary import (
    add as add,
    add_n as add_n,
    atan2 as atan2,
    divide as divide,
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    less as less,
    less_equal as less_equal,
    logical_and as logical_and,
    logical_or as logical_or,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    not_equal as not_equal,
    pow as pow,
    realdiv as realdiv,
    scalar_mul as scalar_mul,
    subtract as subtract,
    truediv as truediv,
    truncatediv as truncatediv,
    truncatemod as truncatemod,
)
from tfdist_jax.compat.tensorflow._ops._cast import (
    bitcast as bitcast,
    cast as cast,
    complex as complex,
    saturate_cast as saturate_cast,
)
from tfdist_jax.compat.tensorflow._ops._clip import (
    clip_by_global_norm as clip_by_global_norm,
    clip_by_norm as clip_by_norm,
    clip_by_value as clip_by_value,
)
from tfdist_jax.compat.tensorflow._ops._concat import (
    concat as concat,
    parallel_stack as parallel_stack,
    slice as slice,
    split as split,
    stack as stack,
    strided_slice as strided_slice,
    unstack as unstack,
)
from tfdist_jax.compat.tensorflow._ops._control import (
    case as case,
    cond as cond,
    foldl as foldl,
    foldr as foldr,
    map_fn as map_fn,
    scan as scan,
    switch_case as switch_case,
    vectorized_map as vectorized_map,
    while_loop as while_loop,
)
from tfdist_jax.compat.tensorflow._ops._creation import (
    eye as eye,
    fill as fill,
    linspace as linspace,
    meshgrid as meshgrid,
    one_hot as one_hot,
    ones as ones,
    ones_like as ones_like,
    range as range,
    sequence_mask as sequence_mask,
    zeros as zeros,
    zeros_like as zeros_like,
)
from tfdist_jax.compat.tensorflow._ops._elementwise import (
    abs as abs,
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atanh as atanh,
    cos as cos,
    cosh as cosh,
    exp as exp,
    floor as floor,
    identity as identity,
    identity_n as identity_n,
    logical_not as logical_not,
    negative as negative,
    round as round,
    sigmoid as sigmoid,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    tan as tan,
    tanh as tanh,
)
from tfdist_jax.compat.tensorflow._ops._graph_compat import (
    CriticalSection as CriticalSection,
    control_dependencies as control_dependencies,
    executing_eagerly as executing_eagerly,
    get_current_name_scope as get_current_name_scope,
    group as group,
    guarantee_const as guarantee_const,
    inside_function as inside_function,
    name_scope as name_scope,
    no_op as no_op,
    numpy_function as numpy_function,
    py_function as py_function,
    timestamp as timestamp,
    tuple as tuple,
)
from tfdist_jax.compat.tensorflow._ops._printing import (
    print as print,
)
from tfdist_jax.compat.tensorflow._ops._reductions import (
    argmax as argmax,
    argmin as argmin,
    cumsum as cumsum,
    histogram_fixed_width as histogram_fixed_width,
    histogram_fixed_width_bins as histogram_fixed_width_bins,
    reduce_all as reduce_all,
    reduce_any as reduce_any,
    reduce_logsumexp as reduce_logsumexp,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
)
from tfdist_jax.compat.tensorflow._ops._selection import (
    boolean_mask as boolean_mask,
    dynamic_partition as dynamic_partition,
    dynamic_stitch as dynamic_stitch,
    gather as gather,
    gather_nd as gather_nd,
    scatter_nd as scatter_nd,
    tensor_scatter_nd_add as tensor_scatter_nd_add,
    tensor_scatter_nd_max as tensor_scatter_nd_max,
    tensor_scatter_nd_min as tensor_scatter_nd_min,
    tensor_scatter_nd_sub as tensor_scatter_nd_sub,
    tensor_scatter_nd_update as tensor_scatter_nd_update,
    unique as unique,
    unique_with_counts as unique_with_counts,
    where as where,
)
from tfdist_jax.compat.tensorflow._ops._shapes import (
    broadcast_dynamic_shape as broadcast_dynamic_shape,
    broadcast_static_shape as broadcast_static_shape,
    broadcast_to as broadcast_to,
    ensure_shape as ensure_shape,
    expand_dims as expand_dims,
    pad as pad,
    rank as rank,
    repeat as repeat,
    reshape as reshape,
    reverse as reverse,
    reverse_sequence as reverse_sequence,
    roll as roll,
    shape as shape,
    shape_n as shape_n,
    size as size,
    squeeze as squeeze,
    tile as tile,
    transpose as transpose,
    unravel_index as unravel_index,
)
from tfdist_jax.compat.tensorflow._ops._sorting import (
    argsort as argsort,
    searchsorted as searchsorted,
    sort as sort,
)
from tfdist_jax.compat.tensorflow._ops._tensor_array import (
    TensorArray as TensorArray,
)
from tfdist_jax.compat.tensorflow._platform._device_spec import (
    DeviceSpec as DeviceSpec,
)
from tfdist_jax.compat.tensorflow._platform._devices import (
    device as device,
)
from tfdist_jax.compat.tensorflow._platform._logging import (
    get_logger as get_logger,
)
from tfdist_jax.compat.tensorflow._platform._op_libraries import (
    load_library as load_library,
    load_op_library as load_op_library,
)
from tfdist_jax.compat.tensorflow._platform._version import (
    COMPILER_VERSION as ___compiler_version__,
    GIT_VERSION as ___git_version__,
    VERSION as ___version__,
)
from tfdist_jax.compat.tensorflow._tensors._conversions import (
    register_tensor_conversion_function as register_tensor_conversion_function,
)
from tfdist_jax.compat.tensorflow._tensors._dtypes import (
    DType as DType,
    as_dtype as as_dtype,
    bfloat16 as bfloat16,
    bool_ as _bool,
    complex128 as complex128,
    complex64 as complex64,
    double as double,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    half as half,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    int8 as int8,
    string as string,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    uint8 as uint8,
)
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import (
    IndexedSlices as IndexedSlices,
)
from tfdist_jax.compat.tensorflow._tensors._shape import (
    TensorShape as TensorShape,
    TensorSpec as TensorSpec,
)
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import (
    SparseTensor as SparseTensor,
    SparseTensorSpec as SparseTensorSpec,
    is_tensor as is_tensor,
    type_spec_from_value as type_spec_from_value,
)
from tfdist_jax.compat.tensorflow._tensors._tensor import (
    Tensor as Tensor,
    constant as constant,
    convert_to_tensor as convert_to_tensor,
    get_static_value as get_static_value,
    is_symbolic_tensor as is_symbolic_tensor,
)
from tfdist_jax.compat.tensorflow._tensors._type_spec import (
    TypeSpec as TypeSpec,
)
from tfdist_jax.compat.tensorflow._variables._module import (
    Module as Module,
)
from tfdist_jax.compat.tensorflow._variables._variable import (
    Variable as Variable,
    VariableAggregation as VariableAggregation,
    VariableSynchronization as VariableSynchronization,
)
from tfdist_jax.compat.tensorflow._variables._variable_creators import (
    variable_creator_scope as variable_creator_scope,
)
from tfdist_jax.compat.tensorflow.keras import (
    initializers as initializers,
    losses as losses,
    metrics as metrics,
    optimizers as optimizers,
)
from tfdist_jax.compat.tensorflow.linalg._matrices import (
    eig as eig,
    eigvals as eigvals,
    einsum as einsum,
    matmul as matmul,
    norm as norm,
    sqrtm as _matrix_square_root,
    tensordot as tensordot,
)
from tfdist_jax.compat.tensorflow.nn._ctc import (
    edit_distance as edit_distance,
)
from tfdist_jax.compat.tensorflow.nn._space_to_batch import (
    batch_to_space as batch_to_space,
    extract_volume_patches as extract_volume_patches,
    required_space_to_batch_paddings as required_space_to_batch_paddings,
    space_to_batch as space_to_batch,
    space_to_batch_nd as space_to_batch_nd,
)
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import (
    RaggedTensor as RaggedTensor,
    RaggedTensorSpec as RaggedTensorSpec,
)
from tfdist_jax.compat.tensorflow.random._initializers import (
    constant_initializer as constant_initializer,
    ones_initializer as ones_initializer,
    random_normal_initializer as random_normal_initializer,
    random_uniform_initializer as random_uniform_initializer,
    zeros_initializer as zeros_initializer,
)
from tfdist_jax.compat.tensorflow.strings._hashing import (
    fingerprint as fingerprint,
)
from tfdist_jax.compat.tensorflow.strings._numbers import (
    as_string as as_string,
)
from tfdist_jax.compat.tensorflow import (
    audio as audio,
    autodiff as autodiff,
    autograph as autograph,
    bitwise as bitwise,
    compat as compat,
    config as config,
    data as data,
    debugging as debugging,
    distribute as distribute,
    dtypes as dtypes,
    errors as errors,
    experimental as experimental,
    feature_column as feature_column,
    image as image,
    io as io,
    keras as keras,
    linalg as linalg,
    lookup as lookup,
    math as math,
    nest as nest,
    nn as nn,
    profiler as profiler,
    ragged as ragged,
    random as random,
    raw_ops as raw_ops,
    saved_model as saved_model,
    signal as signal,
    sparse as sparse,
    strings as strings,
    summary as summary,
    sysconfig as sysconfig,
    test as test,
    tpu as tpu,
    train as train,
    types as types,
    version as version,
    xla as xla,
)
__compiler_version__ = ___compiler_version__
__git_version__ = ___git_version__
__version__ = ___version__
bool = _bool
matrix_square_root = _matrix_square_root
newaxis: None
