"""`tf.linalg`: systems of equations with LU factors, with bands and with three diagonals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import compute, invalid, require, same_type
from tfdist_jax.compat.tensorflow._ops._selection import known
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor

_FORMATS = ("sequence", "matrix", "compact")


def lu_reconstruct(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> jax.Array:
    """Return the matrices of which `tf.linalg.lu` gave these factors and permutations."""
    factors, order = convert_to_tensor(lower_upper), convert_to_tensor(perm)
    lower, upper = _parts(factors)
    return jnp.take_along_axis(lower @ upper, jnp.argsort(order, -1)[..., None], -2)


def lu_solve(lower_upper: Any, perm: Any, rhs: Any, validate_args: bool = False, name: str | None = None) -> jax.Array:
    """Return X with A @ X = rhs, from what `tf.linalg.lu` gave for A."""
    factors, right = same_type(lower_upper, rhs)
    order = convert_to_tensor(perm)
    lower, upper = _parts(factors)
    batch = jnp.broadcast_shapes(factors.shape[:-2], right.shape[:-2])
    right = jnp.broadcast_to(right, (*batch, *right.shape[-2:]))
    turned = jnp.take_along_axis(right, jnp.broadcast_to(order, (*batch, order.shape[-1]))[..., None], -2)
    lower, upper = (jnp.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (lower, upper))
    half = jax.lax.linalg.triangular_solve(lower, turned, left_side=True, lower=True, unit_diagonal=True)
    return jax.lax.linalg.triangular_solve(upper, half, left_side=True, lower=False)


def lu_matrix_inverse(lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None) -> jax.Array:
    """Return the inverse of the matrices of which `tf.linalg.lu` gave these factors."""
    factors = convert_to_tensor(lower_upper)
    return lu_solve(factors, perm, jnp.eye(factors.shape[-1], dtype=factors.dtype))


def _parts(factors: jax.Array) -> tuple[jax.Array, jax.Array]:
    size = factors.shape[-1]
    return jnp.tril(factors, -1) + jnp.eye(size, dtype=factors.dtype), jnp.triu(factors)


def _diagonals(diagonals: Any, diagonals_format: str) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the upper, main and lower diagonal `[..., n]`, the upper one with its filler last, the lower one first."""
    if diagonals_format not in _FORMATS:
        raise ValueError(f"Expected diagonals_format to be one of {_FORMATS}, got {diagonals_format!r}.")
    if diagonals_format == "matrix":
        matrix = convert_to_tensor(diagonals)
        ends = [(0, 0)] * (matrix.ndim - 2)
        off = lambda k, width: jnp.pad(jnp.diagonal(matrix, k, -2, -1), [*ends, width])
        return off(1, (0, 1)), jnp.diagonal(matrix, 0, -2, -1), off(-1, (1, 0))
    if diagonals_format == "sequence" and not is_tensor(diagonals):
        upper, main, lower = (convert_to_tensor(part) for part in diagonals)
        size, ends = main.shape[-1], [(0, 0)] * (main.ndim - 1)
        if upper.shape[-1] == size - 1:
            upper = jnp.pad(upper, [*ends, (0, 1)])
        if lower.shape[-1] == size - 1:
            lower = jnp.pad(lower, [*ends, (1, 0)])
        return upper, main, lower
    parts = convert_to_tensor(diagonals)
    if parts.ndim < 2 or parts.shape[-2] != 3:
        raise ValueError(f"Expected diagonals of shape [..., 3, n], got {tuple(parts.shape)}.")
    return parts[..., 0, :], parts[..., 1, :], parts[..., 2, :]


def tridiagonal_solve(
    diagonals: Any,
    rhs: Any,
    diagonals_format: str = "compact",
    transpose_rhs: bool = False,
    conjugate_rhs: bool = False,
    name: str | None = None,
    partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> jax.Array:
    """Return X with A @ X = rhs, for A with three diagonals.

    See https://www.tensorflow.org/api_docs/python/tf/linalg/tridiagonal_solve.

    Args:
        diagonals: `[..., 3, n]`: the one above (its last number counts for nothing), the main one, and the one below (its
            first counts for nothing); or as `diagonals_format` says.
        rhs: `[..., n]` or `[..., n, k]`.
        diagonals_format: "compact", "sequence" (of three) or "matrix".
        transpose_rhs: Whether `rhs` comes as `[..., k, n]`.
        conjugate_rhs: Whether to take the conjugate of `rhs`.
        name: Unused.
        partial_pivoting: Unused: XLA decides.
        perturb_singular: Unused: singular matrices give what XLA gives.
    """
    upper, main, lower = _diagonals(diagonals, diagonals_format)
    main, right = same_type(main, rhs)
    vector = right.ndim == main.ndim
    right = jnp.conj(right) if conjugate_rhs else right
    right = jnp.swapaxes(right, -1, -2) if transpose_rhs and not vector else right
    right = right[..., None] if vector else right
    lower, upper = lower.at[..., 0].set(0), upper.at[..., -1].set(0)
    solution = compute(jax.lax.linalg.tridiagonal_solve, lower, main, upper, right)
    return solution[..., 0] if vector else solution


def tridiagonal_matmul(
    diagonals: Any, rhs: Any, diagonals_format: str = "compact", name: str | None = None
) -> jax.Array:
    """Return A @ rhs, `[..., n, k]`, for A with three diagonals; arguments as for `tridiagonal_solve`."""
    upper, main, lower = _diagonals(diagonals, diagonals_format)
    main, right = same_type(main, rhs)
    ends = [(0, 0)] * (right.ndim - 2)
    after = jnp.pad(right[..., 1:, :], [*ends, (0, 1), (0, 0)])
    before = jnp.pad(right[..., :-1, :], [*ends, (1, 0), (0, 0)])
    return upper[..., None] * after + main[..., None] * right + lower[..., None] * before


def eigh_tridiagonal(
    alpha: Any,
    beta: Any,
    eigvals_only: bool = True,
    select: str = "a",
    select_range: Any = None,
    tol: Any = None,
    name: str | None = None,
) -> Any:
    """Return the eigenvalues, smallest first, of symmetric matrices with three diagonals.

    See https://www.tensorflow.org/api_docs/python/tf/linalg/eigh_tridiagonal.

    Args:
        alpha: The main diagonal, `[n]`.
        beta: The one beside it, `[n - 1]`.
        eigvals_only: Whether to leave the eigenvectors out.
        select: "a" for all, "i" for those with numbers, or "v" for those with values, in `select_range`.
        select_range: Two numbers, or two bounds of which the lower one is left out.
        tol: Unused: as exact as the type allows.
        name: Unused.
    """
    main, side = same_type(alpha, beta)
    matrix = jnp.diag(main) + jnp.diag(side, 1) + jnp.diag(jnp.conj(side), -1)
    values, vectors = jnp.linalg.eigh(matrix)
    if select == "i":
        first, last = (int(host_value(bound)) for bound in select_range)
        values, vectors = values[first : last + 1], vectors[:, first : last + 1]
    elif select == "v":
        low, high = select_range
        chosen = np.flatnonzero(known((values > low) & (values <= high), "tf.linalg.eigh_tridiagonal(select='v')"))
        values, vectors = values[chosen], vectors[:, chosen]
    elif select != "a":
        raise ValueError(f"`select` must be 'a', 'i' or 'v', got {select!r}.")
    return values if eigvals_only else (values, vectors)


def banded_triangular_solve(
    bands: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> jax.Array:
    """Return X with A @ X = rhs, for triangular A of which only bands beside the diagonal are not zero.

    See https://www.tensorflow.org/api_docs/python/tf/linalg/banded_triangular_solve.

    Args:
        bands: `[..., k, n]`: the diagonal and then the bands below it (each begins with fillers); if not `lower`, the
            bands above it (each ends with fillers) and then the diagonal.
        rhs: `[..., n, m]`.
        lower: Whether A is a lower triangle.
        adjoint: Whether to solve with the adjoint of A.
        name: Unused.
    """
    parts, right = same_type(bands, rhs)
    number, size = parts.shape[-2:]
    if right.ndim < 2 or right.shape[-2] != size:
        raise invalid(f"rhs must be [..., {size}, m], got shape {tuple(right.shape)}.")
    rows = jnp.arange(size)
    matrix = jnp.zeros((*parts.shape[:-2], size, size), parts.dtype)
    for i in range(min(number, size)):
        if lower:
            matrix = matrix.at[..., rows[i:], rows[: size - i]].set(parts[..., i, i:])
        else:
            above = number - 1 - i
            matrix = matrix.at[..., rows[: size - above], rows[above:]].set(parts[..., i, : size - above])
    batch = jnp.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    matrix, right = (jnp.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (matrix, right))
    return compute(
        jax.lax.linalg.triangular_solve,
        matrix,
        right,
        left_side=True,
        lower=lower,
        transpose_a=adjoint,
        conjugate_a=adjoint and as_dtype(matrix.dtype).is_complex,
    )


def logm(input: Any, name: str | None = None) -> jax.Array:
    """Return logarithms of complex matrices without negative real eigenvalues.

    See https://www.tensorflow.org/api_docs/python/tf/linalg/logm. They are made of eigenvectors, so the matrices must have a
    basis of them.
    """
    matrix = require(convert_to_tensor(input), "c", "linalg.logm")
    values, vectors = jnp.linalg.eig(matrix)
    return (vectors * jnp.log(values)[..., None, :]) @ jnp.linalg.inv(vectors)
