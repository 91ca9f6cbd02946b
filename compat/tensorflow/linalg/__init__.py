"""`tf.linalg`: matrices.

See https://www.tensorflow.org/api_docs/python/tf/linalg.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "linalg._matrices": (
            "adjoint band_part cholesky cholesky_solve cross det diag diag_part eig eigh eigvals eigvalsh einsum "
            "expm inv l2_normalize logdet lstsq lu matmul matrix_rank matrix_transpose matvec norm normalize pinv "
            "qr set_diag slogdet solve sqrtm svd tensor_diag tensor_diag_part tensordot trace triangular_solve"
        ),
        "_ops._clip": "global_norm",
        "_ops._creation": "eye",
        "linalg._linear_systems": (
            "banded_triangular_solve eigh_tridiagonal logm lu_matrix_inverse lu_reconstruct lu_solve "
            "tridiagonal_matmul tridiagonal_solve"
        ),
        "linalg._linear_operators": (
            "LinearOperator LinearOperatorDiag LinearOperatorFullMatrix LinearOperatorIdentity "
            "LinearOperatorLowerTriangular LinearOperatorScaledIdentity"
        ),
    },
)
__dir__ = __getattr__.names
