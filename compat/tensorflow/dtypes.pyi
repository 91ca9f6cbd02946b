# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._ops._cast import (
    cast as cast,
    complex as complex,
    saturate_cast as saturate_cast,
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
bool = _bool
