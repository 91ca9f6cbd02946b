# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow._ops._elementwise import (
    bessel_i0 as bessel_i0,
    bessel_i0e as bessel_i0e,
    bessel_i1 as bessel_i1,
    bessel_i1e as bessel_i1e,
    dawsn as dawsn,
    expint as expint,
    fresnel_cos as fresnel_cos,
    fresnel_sin as fresnel_sin,
    spence as spence,
)
