"""`tf.linalg.LinearOperator`: matrices that are known by less than all their elements."""

import abc
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import static_int, static_ints
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, user_shape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.linalg import _matrices

_HINTS = ("is_non_singular", "is_self_adjoint", "is_positive_definite", "is_square")


class LinearOperator(abc.ABC):
    """A matrix, or a batch of them, that multiplies and solves without being written out.

    Ref: https://www.tensorflow.org/api_docs/python/tf/linalg/LinearOperator. Differences: operators give tensors, not
    operators, for products with each other, and the hints are kept but change nothing.
    """

    def __init__(
        self,
        dtype: Any,
        graph_parents: Any = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
        parameters: Any = None,
    ) -> None:
        """Keep the type of the elements, and what is known of the matrix."""
        self._dtype = as_dtype(dtype)
        self._name = name or type(self).__name__
        if is_positive_definite and is_non_singular is False:
            raise ValueError("A positive definite matrix is always non-singular.")
        self.is_non_singular = True if is_positive_definite else is_non_singular
        self.is_self_adjoint, self.is_positive_definite, self.is_square = (
            is_self_adjoint,
            is_positive_definite,
            is_square,
        )

    @property
    @abc.abstractmethod
    def shape(self) -> TensorShape:
        """The shape of the matrix or matrices, `[..., rows, columns]`."""

    @abc.abstractmethod
    def to_dense(self, name: str = "to_dense") -> jax.Array:
        """Return all elements."""

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._dtype

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @property
    def batch_shape(self) -> TensorShape:
        """The shape without rows and columns."""
        return self.shape[:-2]

    @property
    def tensor_rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def range_dimension(self) -> int:
        """The number of rows."""
        return self.shape[-2]

    @property
    def domain_dimension(self) -> int:
        """The number of columns."""
        return self.shape[-1]

    @property
    def H(self) -> "LinearOperator":
        """The adjoint operator."""
        return self.adjoint()

    def shape_tensor(self, name: str = "shape_tensor") -> HostTensor:
        """Return the shape as a tensor."""
        return HostTensor.of(np.asarray(tuple(self.shape), np.int32))

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> HostTensor:
        """Return the shape without rows and columns as a tensor."""
        return self.shape_tensor()[:-2]

    def adjoint(self, name: str = "adjoint") -> "LinearOperator":
        """Return the adjoint operator."""
        return LinearOperatorFullMatrix(_matrices.adjoint(self.to_dense()))

    def matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul") -> jax.Array:
        """Return the product with matrices, `[..., columns, k]`."""
        other = _dense(x, self._dtype)
        return self._matmul(_matrices.adjoint(other) if adjoint_arg else other, adjoint)

    def matvec(self, x: Any, adjoint: bool = False, name: str = "matvec") -> jax.Array:
        """Return the product with vectors, `[..., columns]`."""
        return self.matmul(_dense(x, self._dtype)[..., None], adjoint)[..., 0]

    def solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve") -> jax.Array:
        """Return X with which the product is `rhs`, `[..., rows, k]`."""
        other = _dense(rhs, self._dtype)
        if self.shape[-1] != self.shape[-2]:
            raise NotImplementedError(f"Exact solve not implemented for an operator that is not square: {self.shape}.")
        return self._solve(_matrices.adjoint(other) if adjoint_arg else other, adjoint)

    def solvevec(self, rhs: Any, adjoint: bool = False, name: str = "solve") -> jax.Array:
        """Return the vectors with which the product is `rhs`, `[..., rows]`."""
        return self.solve(_dense(rhs, self._dtype)[..., None], adjoint)[..., 0]

    def inverse(self, name: str = "inverse") -> "LinearOperator":
        """Return the inverse operator."""
        return LinearOperatorFullMatrix(self.solve(jnp.eye(self.shape[-1], dtype=self._dtype.dtype)))

    def cholesky(self, name: str = "cholesky") -> "LinearOperator":
        """Return the Cholesky factor as an operator."""
        return LinearOperatorLowerTriangular(_matrices.cholesky(self.to_dense()))

    def determinant(self, name: str = "det") -> jax.Array:
        """Return determinants."""
        return _matrices.det(self.to_dense())

    def log_abs_determinant(self, name: str = "log_abs_det") -> jax.Array:
        """Return logarithms of the absolute values of determinants."""
        return _matrices.slogdet(self.to_dense()).log_abs_determinant

    def diag_part(self, name: str = "diag_part") -> jax.Array:
        """Return diagonals."""
        return jnp.diagonal(self.to_dense(), 0, -2, -1)

    def trace(self, name: str = "trace") -> jax.Array:
        """Return sums of diagonals."""
        return jnp.sum(self.diag_part(), -1)

    def add_to_tensor(self, x: Any, name: str = "add_to_tensor") -> jax.Array:
        """Return the sum with matrices."""
        return self.to_dense() + _dense(x, self._dtype)

    def eigvals(self, name: str = "eigvals") -> jax.Array:
        """Return the eigenvalues of a self-adjoint operator."""
        if not self.is_self_adjoint:
            raise NotImplementedError(
                "Only self-adjoint operators have `eigvals`: use tf.linalg.eigvals(op.to_dense())."
            )
        return _matrices.eigvalsh(self.to_dense())

    def cond(self, name: str = "cond") -> jax.Array:
        """Return condition numbers: of the largest and the smallest singular value."""
        return jnp.linalg.cond(self.to_dense())

    def _matmul(self, other: jax.Array, adjoint: bool) -> jax.Array:
        return _matrices.matmul(self.to_dense(), other, adjoint_a=adjoint)

    def _solve(self, other: jax.Array, adjoint: bool) -> jax.Array:
        matrix = self.to_dense()
        return jnp.linalg.solve(_matrices.adjoint(matrix) if adjoint else matrix, other)

    def __matmul__(self, other: Any) -> jax.Array:
        """Return `matmul`."""
        return self.matmul(other)


def _dense(value: Any, dtype: Any) -> jax.Array:
    """Return a matrix or an operator as a tensor of a type."""
    return value.to_dense() if isinstance(value, LinearOperator) else convert_to_tensor(value, dtype)


@final
class LinearOperatorFullMatrix(LinearOperator):
    """Any matrix. See https://www.tensorflow.org/api_docs/python/tf/linalg/LinearOperatorFullMatrix."""

    def __init__(
        self,
        matrix: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = "LinearOperatorFullMatrix",
    ) -> None:
        """Keep matrices, `[..., rows, columns]`."""
        self.matrix = convert_to_tensor(matrix)
        if self.matrix.ndim < 2:
            raise ValueError(f"Argument `matrix` must have at least 2 dimensions. Received: {self.matrix}.")
        hints = is_non_singular, is_self_adjoint, is_positive_definite
        square = self.matrix.shape[-1] == self.matrix.shape[-2]
        super().__init__(self.matrix.dtype, None, *hints, square if is_square is None else is_square, name)

    @property
    def shape(self) -> TensorShape:
        """The shape of the matrices."""
        return user_shape(tuple(self.matrix.shape))

    def to_dense(self, name: str = "to_dense") -> jax.Array:
        """Return the matrices."""
        return self.matrix


@final
class LinearOperatorLowerTriangular(LinearOperator):
    """A lower triangle. See https://www.tensorflow.org/api_docs/python/tf/linalg/LinearOperatorLowerTriangular."""

    def __init__(
        self,
        tril: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = "LinearOperatorLowerTriangular",
    ) -> None:
        """Keep the lower triangles of matrices, `[..., n, n]`."""
        if is_square is False:
            raise ValueError("Only square lower triangular operators supported at this time.")
        self.tril = jnp.tril(convert_to_tensor(tril))
        super().__init__(self.tril.dtype, None, is_non_singular, is_self_adjoint, is_positive_definite, True, name)

    @property
    def shape(self) -> TensorShape:
        """The shape of the matrices."""
        return user_shape(tuple(self.tril.shape))

    def to_dense(self, name: str = "to_dense") -> jax.Array:
        """Return the matrices, with zeros above the diagonal."""
        return self.tril

    def determinant(self, name: str = "det") -> jax.Array:
        """Return the products of diagonals."""
        return jnp.prod(self.diag_part(), -1)

    def log_abs_determinant(self, name: str = "log_abs_det") -> jax.Array:
        """Return the sums of logarithms of diagonals."""
        return jnp.sum(jnp.log(jnp.abs(self.diag_part())), -1)

    def _solve(self, other: jax.Array, adjoint: bool) -> jax.Array:
        batch = jnp.broadcast_shapes(self.tril.shape[:-2], other.shape[:-2])
        matrix, other = (jnp.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (self.tril, other))
        return _matrices.triangular_solve(matrix, other, lower=True, adjoint=adjoint)


@final
class LinearOperatorDiag(LinearOperator):
    """A diagonal. See https://www.tensorflow.org/api_docs/python/tf/linalg/LinearOperatorDiag."""

    def __init__(
        self,
        diag: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = "LinearOperatorDiag",
    ) -> None:
        """Keep diagonals, `[..., n]`."""
        self.diag = convert_to_tensor(diag)
        if not self.diag.ndim:
            raise ValueError(f"Argument `diag` must have at least 1 dimension. Received: {self.diag}.")
        if is_square is False:
            raise ValueError("Only square diagonal operators currently supported.")
        real = not as_dtype(self.diag.dtype).is_complex
        adjoint = True if real and is_self_adjoint is None else is_self_adjoint
        super().__init__(self.diag.dtype, None, is_non_singular, adjoint, is_positive_definite, True, name)

    @property
    def shape(self) -> TensorShape:
        """The shape of the matrices."""
        return user_shape((*self.diag.shape, self.diag.shape[-1]))

    def to_dense(self, name: str = "to_dense") -> jax.Array:
        """Return the matrices."""
        return _matrices.diag(self.diag)

    def adjoint(self, name: str = "adjoint") -> LinearOperator:
        """Return the adjoint operator."""
        return LinearOperatorDiag(jnp.conj(self.diag))

    def inverse(self, name: str = "inverse") -> LinearOperator:
        """Return the inverse operator."""
        return LinearOperatorDiag(1 / self.diag)

    def cholesky(self, name: str = "cholesky") -> LinearOperator:
        """Return the Cholesky factor as an operator."""
        return LinearOperatorDiag(jnp.sqrt(self.diag))

    def determinant(self, name: str = "det") -> jax.Array:
        """Return products of diagonals."""
        return jnp.prod(self.diag, -1)

    def log_abs_determinant(self, name: str = "log_abs_det") -> jax.Array:
        """Return sums of logarithms of diagonals."""
        return jnp.sum(jnp.log(jnp.abs(self.diag)), -1)

    def diag_part(self, name: str = "diag_part") -> jax.Array:
        """Return diagonals."""
        return self.diag

    def _matmul(self, other: jax.Array, adjoint: bool) -> jax.Array:
        return (jnp.conj(self.diag) if adjoint else self.diag)[..., None] * other

    def _solve(self, other: jax.Array, adjoint: bool) -> jax.Array:
        return other / (jnp.conj(self.diag) if adjoint else self.diag)[..., None]


@final
class LinearOperatorScaledIdentity(LinearOperator):
    """A multiple of the identity. See https://www.tensorflow.org/api_docs/python/tf/linalg/LinearOperatorScaledIdentity."""

    def __init__(
        self,
        num_rows: Any,
        multiplier: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        assert_proper_shapes: bool = False,
        name: str | None = "LinearOperatorScaledIdentity",
    ) -> None:
        """Keep the size and the factors, `[...]`."""
        self.multiplier = convert_to_tensor(multiplier)
        self._rows = static_int(num_rows, "num_rows")
        real = not as_dtype(self.multiplier.dtype).is_complex
        adjoint = True if real and is_self_adjoint is None else is_self_adjoint
        super().__init__(self.multiplier.dtype, None, is_non_singular, adjoint, is_positive_definite, is_square, name)

    @property
    def shape(self) -> TensorShape:
        """The shape of the matrices."""
        return user_shape((*self.multiplier.shape, self._rows, self._rows))

    def to_dense(self, name: str = "to_dense") -> jax.Array:
        """Return the matrices."""
        return self.multiplier[..., None, None] * jnp.eye(self._rows, dtype=self._dtype.dtype)

    def _matmul(self, other: jax.Array, adjoint: bool) -> jax.Array:
        factor = jnp.conj(self.multiplier) if adjoint else self.multiplier
        return factor[..., None, None] * other

    def _solve(self, other: jax.Array, adjoint: bool) -> jax.Array:
        factor = jnp.conj(self.multiplier) if adjoint else self.multiplier
        return other / factor[..., None, None]


@final
class LinearOperatorIdentity(LinearOperator):
    """An identity matrix. See https://www.tensorflow.org/api_docs/python/tf/linalg/LinearOperatorIdentity."""

    def __init__(
        self,
        num_rows: Any,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool | None = True,
        is_self_adjoint: bool | None = True,
        is_positive_definite: bool | None = True,
        is_square: bool | None = True,
        assert_proper_shapes: bool = False,
        name: str | None = "LinearOperatorIdentity",
    ) -> None:
        """Keep the size, and the shape of the batch."""
        self._rows = static_int(num_rows, "num_rows")
        self._batch = () if batch_shape is None else static_ints(batch_shape, "batch_shape")
        for hint, value in zip(
            _HINTS, (is_non_singular, is_self_adjoint, is_positive_definite, is_square), strict=True
        ):
            if not value:
                raise ValueError(f"An identity operator is always {hint}.")
        super().__init__(dtype or _dtypes.float32, None, True, True, True, True, name)

    @property
    def shape(self) -> TensorShape:
        """The shape of the matrices."""
        return user_shape((*self._batch, self._rows, self._rows))

    def to_dense(self, name: str = "to_dense") -> jax.Array:
        """Return the matrices."""
        return jnp.broadcast_to(jnp.eye(self._rows, dtype=self._dtype.dtype), tuple(self.shape))

    def _matmul(self, other: jax.Array, adjoint: bool) -> jax.Array:
        return jnp.broadcast_to(other, (*jnp.broadcast_shapes(self._batch, other.shape[:-2]), *other.shape[-2:]))

    def _solve(self, other: jax.Array, adjoint: bool) -> jax.Array:
        return self._matmul(other, adjoint)
