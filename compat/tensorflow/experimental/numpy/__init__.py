"""`tf.experimental.numpy`: NumPy's functions for tensors.

See https://www.tensorflow.org/api_docs/python/tf/experimental/numpy.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

newaxis = None

__getattr__ = LazyNames(
    __name__,
    {
        "_tensors._tensor": "ndarray=Tensor",
        "experimental.numpy._functions": (
            "abs absolute add all allclose amax amin angle any append arange arccos arccosh arcsin arcsinh arctan "
            "arctan2 arctanh argmax argmin argsort around array array_equal asanyarray=asarray asarray "
            "ascontiguousarray=asarray atleast_1d atleast_2d atleast_3d average bitwise_and bitwise_not bitwise_or "
            "bitwise_xor broadcast_arrays broadcast_to cbrt ceil clip compress concatenate conj conjugate copy cos "
            "cosh count_nonzero cross cumprod cumsum deg2rad diag diag_indices diagflat diagonal diff divide divmod "
            "dot dsplit dstack einsum empty empty_like equal exp exp2 expand_dims experimental_enable_numpy_behavior "
            "expm1 eye fabs flip fliplr flipud float_power floor floor_divide full full_like gcd geomspace greater "
            "greater_equal heaviside hsplit hstack hypot identity imag inner isclose iscomplex iscomplexobj isfinite "
            "isinf isnan isneginf isposinf isreal isrealobj ix_ kron lcm less less_equal linspace log log10 log1p log2 "
            "logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logspace matmul max maximum mean "
            "meshgrid min minimum mod moveaxis multiply nanmean nanprod nansum ndim negative nextafter nonzero "
            "not_equal ones ones_like outer pad polyval positive power prod ptp rad2deg ravel real reciprocal "
            "remainder repeat reshape result_type roll rot90 round select shape sign signbit sin sinc sinh size sort "
            "split sqrt square squeeze stack std subtract sum swapaxes take take_along_axis tan tanh tensordot tile "
            "trace transpose tri tril triu true_divide vander var vdot vsplit vstack where zeros zeros_like"
        ),
        "experimental.numpy._types": (
            "bool_ complex128 complex64 complex_ e finfo float16 float32 float64 float_ iinfo inexact inf int16 int32 "
            "int64 int8 int_ isscalar issubdtype object_ pi promote_types string_ uint16 uint32 uint64 uint8 unicode_"
        ),
    },
    modules="random",
)
__dir__ = __getattr__.names
