"""Matrices: products, norms, decompositions and equations."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops import _subgradients
from tfdist_jax.compat.tensorflow._ops._arguments import (
    all_same_type,
    axes,
    compute,
    invalid,
    require,
    same_type,
    static_int,
    static_ints,
)
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import check_solvable
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_PAGE = "https://www.tensorflow.org/api_docs/python/tf/linalg"


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
    grad_a: bool = False,
    grad_b: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return the product of matrices, or of batches of them.

    Args:
        a: `[..., rows, inner]`.
        b: `[..., inner, columns]`.
        transpose_a: Swap the last two axes of `a` first.
        transpose_b: Swap those of `b`.
        adjoint_a: Swap those of `a` and conjugate.
        adjoint_b: The same for `b`.
        a_is_sparse: Unused: a hint.
        b_is_sparse: Unused.
        output_type: The type of the result, that of the arguments if None.
        grad_a: Unused.
        grad_b: Unused.
        name: Unused.
    """
    a, b = same_type(a, b)
    if a.ndim < 2 or b.ndim < 2:
        compute(_two_axes_needed, a, b)
    left = _oriented(a, transpose=transpose_a, adjoint=adjoint_a)
    right = _oriented(b, transpose=transpose_b, adjoint=adjoint_b)
    wanted = None if output_type is None else as_dtype(output_type).dtype
    _must_fit(a, b, left.shape[-1:], right.shape[-2:-1])
    return compute(jnp.matmul, left, right, preferred_element_type=wanted)


def _must_fit(a: Any, b: Any, left: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    """Refuse factors whose sizes, where they are summed over, differ; symbols are left to JAX."""
    if all(isinstance(size, int) for size in (*left, *right)) and left != right:
        raise invalid(f"Matrix size-incompatible: In[0]: {list(a.shape)}, In[1]: {list(b.shape)}")


def _two_axes_needed(a: Any, b: Any) -> None:
    raise ValueError(f"In[0] and In[1] must have at least two axes, got shapes {tuple(a.shape)} and {tuple(b.shape)}.")


def _oriented(matrix: jax.Array, *, transpose: bool, adjoint: bool) -> jax.Array:
    if transpose and adjoint:
        raise ValueError("Only one of `transpose` and `adjoint` can be True for a factor of tf.matmul.")
    if adjoint:
        return jnp.conj(jnp.swapaxes(matrix, -1, -2))
    return jnp.swapaxes(matrix, -1, -2) if transpose else matrix


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Return the product of matrices `[..., rows, columns]` and vectors `[..., columns]`."""
    return matmul(a, convert_to_tensor(b)[..., None], transpose_a=transpose_a, adjoint_a=adjoint_a)[..., 0]


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> jax.Array:
    """Return the sum of products over pairs of axes: a number of them, or two lists of axes."""
    a, b = same_type(a, b)
    pairs = (
        [static_ints(part, "axes") for part in axes] if np.ndim(axes) or isinstance(axes, list | tuple) else int(axes)
    )
    number = pairs if isinstance(pairs, int) else None
    if number is not None and 0 < number <= min(a.ndim, b.ndim):
        _must_fit(a, b, a.shape[-number:], b.shape[:number])
    return compute(jnp.tensordot, a, b, pairs)


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> jax.Array:
    """Return the sum of products that an equation such as "ij,jk->ik" describes."""
    kwargs.pop("name", None)
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(f"Invalid keyword arguments for this function: {', '.join(map(repr, kwargs))}.")
    return compute(jnp.einsum, equation, *all_same_type(inputs))


def norm(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: Any = None, name: str | None = None
) -> jax.Array:
    """Return vector norms (over one axis, or all) or matrix norms (over two).

    `ord` is "euclidean", 1, 2, np.inf or another number; "fro" for matrices.
    """
    values = require(convert_to_tensor(tensor), "fc", "norm")
    where = axes(axis)
    if isinstance(where, tuple) and len(where) == 2:
        kind = "fro" if ord == "euclidean" else ord
        return compute(jnp.linalg.norm, values, kind, where, bool(keepdims))
    if where is None:
        result = _vector_norm(values.reshape(-1), ord)
        return result.reshape((1,) * values.ndim) if keepdims else result
    return _vector_norm(values, ord, where, bool(keepdims))


def _vector_norm(values: jax.Array, ord: Any, *where: Any) -> jax.Array:
    if ord in ("euclidean", "fro", 2):
        return compute(jnp.linalg.norm, values, 2, *where)
    return compute(jnp.linalg.norm, _subgradients.absolute(values), ord, *where)  # Whose gradient at 0 is 0.


def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None) -> tuple[Any, Any]:
    """Return the tensor divided by its norm, and the norm."""
    length = norm(tensor, ord, axis, True)
    return convert_to_tensor(tensor) / length, length


def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> jax.Array:
    """Return the tensor divided by its L2 norm over axes, whose square is taken to be at least `epsilon`."""
    tensor = convert_to_tensor(x)
    squares = jnp.sum(jnp.square(jnp.abs(tensor)), axes(dim if axis is None else axis), keepdims=True)
    return tensor * jax.lax.rsqrt(_subgradients.maximum(squares, convert_to_tensor(epsilon, as_dtype(squares.dtype))))


def _matrix(name: str, function: Callable[..., Any], doc: str) -> Callable[..., Any]:
    """Make TensorFlow's operation of a JAX function of a square matrix."""

    def operation(input: Any, name: str | None = None) -> Any:
        matrix = require(convert_to_tensor(input), "fc", f"linalg.{operation.__name__}")
        _require_square(matrix)
        return compute(function, matrix)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{doc}\n\n    See {_PAGE}/{name}.\n    "
    return operation


def _require_square(matrix: jax.Array) -> None:
    if matrix.ndim < 2:
        raise invalid(f"Input tensor 0 must have rank >= 2, got {matrix.ndim}.")
    if matrix.shape[-1] != matrix.shape[-2]:
        raise invalid(f"Input matrix must be square, got {tuple(matrix.shape)}.")


def _square_root(matrix: jax.Array) -> jax.Array:
    # JAX's own begins its loops with constants of the widest type that is switched on.
    wide = jnp.finfo(matrix.dtype).bits == 64
    with jax.enable_x64(True) if wide else contextlib.nullcontext():
        root = jax.scipy.linalg.sqrtm(matrix)
    return root if jnp.iscomplexobj(matrix) else jnp.real(root).astype(matrix.dtype)


class SlogDeterminant(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: jax.Array
    log_abs_determinant: jax.Array


class Qr(NamedTuple):
    """An orthonormal and an upper triangular factor."""

    q: jax.Array
    r: jax.Array


cholesky = _matrix("cholesky", jnp.linalg.cholesky, "Return lower triangular factors L of L @ L^H.")
det = _matrix("det", jnp.linalg.det, "Return determinants.")
expm = _matrix("expm", jax.scipy.linalg.expm, "Return matrix exponentials.")
sqrtm = _matrix("sqrtm", _square_root, "Return matrix square roots; of real matrices, real ones.")
slogdet = _matrix(
    "slogdet", lambda a: SlogDeterminant(*jnp.linalg.slogdet(a)), "Return signs and log absolute determinants."
)


def inv(input: Any, adjoint: bool = False, name: str | None = None) -> jax.Array:
    """Return inverse matrices, of the adjoint ones if `adjoint`."""
    matrix = _oriented(convert_to_tensor(input), transpose=False, adjoint=adjoint)
    inverse = compute(jnp.linalg.inv, matrix)
    check_solvable(inverse, matrix)
    return inverse


def logdet(matrix: Any, name: str | None = None) -> jax.Array:
    """Return logarithms of determinants of positive definite matrices."""
    return 2 * jnp.sum(jnp.log(jnp.real(diag_part(cholesky(matrix)))), -1)


def solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> jax.Array:
    """Return X with matrix @ X = rhs."""
    matrix, rhs = same_type(matrix, rhs)
    _require_square(matrix)
    if rhs.ndim < 2 or rhs.shape[-2] != matrix.shape[-1]:
        raise invalid(f"Input matrix and rhs are incompatible: {tuple(matrix.shape)} and {tuple(rhs.shape)}.")
    solution = compute(jnp.linalg.solve, _oriented(matrix, transpose=False, adjoint=adjoint), rhs)
    check_solvable(solution, matrix, rhs)
    return solution


def triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> jax.Array:
    """Return X with matrix @ X = rhs, for a triangular matrix."""
    matrix, rhs = same_type(matrix, rhs)
    return compute(jax.scipy.linalg.solve_triangular, matrix, rhs, lower=lower, trans=2 if adjoint else 0)


def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> jax.Array:
    """Return X with A @ X = rhs, from the Cholesky factor of A."""
    chol, rhs = same_type(chol, rhs)
    return compute(jax.scipy.linalg.cho_solve, (chol, True), rhs)


def lstsq(matrix: Any, rhs: Any, l2_regularizer: float = 0.0, fast: bool = True, name: str | None = None) -> jax.Array:
    """Return X that makes matrix @ X - rhs smallest, in the sense of least squares."""
    matrix, rhs = same_type(matrix, rhs)
    rows, columns = matrix.shape[-2:]
    if not fast:
        return compute(jnp.matmul, jnp.linalg.pinv(matrix), rhs)
    adjoint = jnp.conj(jnp.swapaxes(matrix, -1, -2))
    damping = l2_regularizer * jnp.eye(min(rows, columns), dtype=matrix.dtype)
    if rows >= columns:
        return jnp.linalg.solve(adjoint @ matrix + damping, adjoint @ rhs)
    return adjoint @ jnp.linalg.solve(matrix @ adjoint + damping, rhs)


def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> jax.Array:
    """Return Moore-Penrose inverses."""
    return compute(jnp.linalg.pinv, convert_to_tensor(a), rcond)


def matrix_rank(a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None) -> jax.Array:
    """Return the ranks of matrices, int32."""
    singular = jnp.linalg.svd(convert_to_tensor(a), compute_uv=False)
    if tol is None:
        tol = jnp.max(singular, -1, keepdims=True) * max(a.shape[-2:]) * jnp.finfo(singular.dtype).eps
    return jnp.sum(singular > tol, -1).astype(jnp.int32)


def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> Qr:
    """Return factors Q and R."""
    return Qr(*compute(jnp.linalg.qr, convert_to_tensor(input), "complete" if full_matrices else "reduced"))


def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """Return singular values, and left and right singular vectors: s, u, v with tensor = u @ diag(s) @ v^H."""
    matrix = convert_to_tensor(tensor)
    if not compute_uv:
        return compute(jnp.linalg.svd, matrix, compute_uv=False)
    u, s, vh = compute(jnp.linalg.svd, matrix, full_matrices=full_matrices)
    return s, u, jnp.conj(jnp.swapaxes(vh, -1, -2))


def eigh(tensor: Any, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Return eigenvalues, smallest first, and eigenvectors of self-adjoint matrices."""
    return tuple(compute(jnp.linalg.eigh, convert_to_tensor(tensor), symmetrize_input=False))


def eigvalsh(tensor: Any, name: str | None = None) -> jax.Array:
    """Return eigenvalues, smallest first, of self-adjoint matrices."""
    return eigh(tensor)[0]


def eig(tensor: Any, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Return eigenvalues and eigenvectors of matrices, complex; on the CPU only."""
    return tuple(compute(jnp.linalg.eig, convert_to_tensor(tensor)))


def eigvals(tensor: Any, name: str | None = None) -> jax.Array:
    """Return eigenvalues of matrices, complex; on the CPU only."""
    return compute(jnp.linalg.eigvals, convert_to_tensor(tensor))


def adjoint(matrix: Any, name: str | None = None) -> jax.Array:
    """Return matrices with rows and columns swapped and conjugated."""
    return _oriented(convert_to_tensor(matrix), transpose=False, adjoint=True)


def matrix_transpose(a: Any, name: str | None = "matrix_transpose", conjugate: bool = False) -> jax.Array:
    """Return matrices with rows and columns swapped."""
    return _oriented(convert_to_tensor(a), transpose=not conjugate, adjoint=conjugate)


def trace(x: Any, name: str | None = None) -> jax.Array:
    """Return sums of diagonals."""
    tensor = convert_to_tensor(x)
    return compute(jnp.trace, tensor, axis1=-2, axis2=-1, dtype=tensor.dtype)


def diag(
    diagonal: Any,
    name: str | None = "diag",
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> jax.Array:
    """Return matrices with a given diagonal, the main one or number `k` (one number), and `padding_value` elsewhere."""
    values = convert_to_tensor(diagonal)
    (offset,) = static_ints(k, "k")
    sizes = [values.shape[-1] + max(-offset, 0), values.shape[-1] + max(offset, 0)]
    given = [static_int(num_rows, "num_rows"), static_int(num_cols, "num_cols")]
    if given == [-1, -1]:
        sizes = [max(sizes)] * 2  # Square, unless a size is given.
    sizes = [least if wanted == -1 else wanted for least, wanted in zip(sizes, given, strict=True)]
    blank = jnp.broadcast_to(convert_to_tensor(padding_value, as_dtype(values.dtype)), (*values.shape[:-1], *sizes))
    return set_diag(blank, values, k=offset)


def diag_part(
    input: Any, name: str | None = "diag_part", k: Any = 0, padding_value: Any = 0, align: str = "RIGHT_LEFT"
) -> jax.Array:
    """Return the diagonals, the main one or number `k` (one number), of matrices."""
    (offset,) = static_ints(k, "k")
    return compute(jnp.diagonal, convert_to_tensor(input), offset, -2, -1)


def set_diag(
    input: Any, diagonal: Any, name: str | None = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT"
) -> jax.Array:
    """Return matrices with a diagonal, the main one or number `k` (one number), replaced."""
    (offset,) = static_ints(k, "k")
    matrix, values = same_type(input, diagonal)
    entries = jnp.arange(values.shape[-1])
    return compute(matrix.at[..., entries + max(-offset, 0), entries + max(offset, 0)].set, values)


def tensor_diag(diagonal: Any, name: str | None = None) -> jax.Array:
    """Return a tensor of twice the rank with the elements on its diagonal."""
    values = convert_to_tensor(diagonal)
    return jnp.diag(values.reshape(-1)).reshape(values.shape * 2)


def tensor_diag_part(input: Any, name: str | None = None) -> jax.Array:
    """Return the diagonal of a tensor whose shape is another one twice."""
    values = convert_to_tensor(input)
    half = tuple(values.shape[: values.ndim // 2])
    size = int(np.prod(half))
    return jnp.diagonal(values.reshape(size, size)).reshape(half)


def band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> jax.Array:
    """Return matrices with zeros outside of a band; -1 keeps all diagonals on that side."""
    matrix = convert_to_tensor(input)
    rows, columns = jnp.arange(matrix.shape[-2])[:, None], jnp.arange(matrix.shape[-1])[None, :]
    lower, upper = convert_to_tensor(num_lower), convert_to_tensor(num_upper)
    inside = ((lower < 0) | (rows - columns <= lower)) & ((upper < 0) | (columns - rows <= upper))
    return jnp.where(inside, matrix, jnp.zeros_like(matrix))


def cross(a: Any, b: Any, name: str | None = None) -> jax.Array:
    """Return cross products of vectors of three."""
    return compute(jnp.cross, *same_type(a, b))


def lu(input: Any, output_idx_type: Any = _dtypes.int32, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Return both factors of matrices in one, and the permutation of the rows."""
    packed, _, permutation = compute(jax.lax.linalg.lu, convert_to_tensor(input))
    return packed, permutation.astype(as_dtype(output_idx_type).dtype)
