# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.compat.v1._flags import (
    DEFINE_bool as DEFINE_bool,
    DEFINE_boolean as DEFINE_boolean,
    DEFINE_enum as DEFINE_enum,
    DEFINE_float as DEFINE_float,
    DEFINE_integer as DEFINE_integer,
    DEFINE_list as DEFINE_list,
    DEFINE_multi_float as DEFINE_multi_float,
    DEFINE_multi_integer as DEFINE_multi_integer,
    DEFINE_multi_string as DEFINE_multi_string,
    DEFINE_string as DEFINE_string,
    FLAGS as FLAGS,
    mark_flag_as_required as mark_flag_as_required,
    mark_flags_as_required as mark_flags_as_required,
)
