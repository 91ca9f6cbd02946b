"""`tf.debugging`: assertions about tensors, and settings that help to find errors.

See https://www.tensorflow.org/api_docs/python/tf/debugging.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_ops._assertions": (
            "Assert assert_all_finite assert_equal assert_greater assert_greater_equal assert_integer assert_less "
            "assert_less_equal assert_near assert_negative assert_non_negative assert_non_positive "
            "assert_none_equal assert_positive assert_proper_iterable assert_rank assert_rank_at_least "
            "assert_rank_in assert_same_float_dtype assert_scalar assert_shapes assert_type check_numerics "
            "is_numeric_tensor"
        ),
        "_platform._diagnostics": (
            "disable_check_numerics disable_traceback_filtering enable_check_numerics enable_traceback_filtering "
            "get_log_device_placement is_traceback_filtering_enabled set_log_device_placement"
        ),
    },
)
__dir__ = __getattr__.names
