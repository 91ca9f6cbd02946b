"""`tf.experimental.numpy`: NumPy's own types and numbers."""

import numpy as np

e, inf, pi = np.e, np.inf, np.pi
bool_, object_, string_, unicode_, inexact = np.bool_, np.object_, np.bytes_, np.str_, np.inexact
int8, int16, int32, int64, int_ = np.int8, np.int16, np.int32, np.int64, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float16, float32, float64, float_ = np.float16, np.float32, np.float64, np.float64
complex64, complex128, complex_ = np.complex64, np.complex128, np.complex128
finfo, iinfo, promote_types = np.finfo, np.iinfo, np.promote_types
isscalar, issubdtype = np.isscalar, np.issubdtype
