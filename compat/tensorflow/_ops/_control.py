"""Control flow: Python's own on known values, XLA's while a function is traced."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._stateful import _control_flow
from tfdist_jax.compat.tensorflow._ops._arguments import static_int
from tfdist_jax.compat.tensorflow._ops._concat import stack
from tfdist_jax.compat.tensorflow._ops._creation import zeros
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._nest import map_structure
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor, is_tracing


def _tensors(structure: Any) -> Any:
    """Return a structure with its leaves as tensors; None stays."""
    return map_in_order(convert_to_tensor, structure, is_leaf=is_tensor)


def _is_traced(*values: Any) -> bool:
    """Whether code, or what it works on, is part of a function that is being traced."""
    return is_tracing() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def _branch(index: Any, branches: Sequence[Callable[[], Any]]) -> Any:
    found: list[list[Any]] = []
    types: list[list[str]] = []

    def run(fn: Callable[[], Any]) -> Any:
        results = in_order(_tensors(fn()))
        types.append([as_dtype(leaf.dtype).name for leaf in jax.tree.leaves(results)])
        if len(types[0]) == len(types[-1]) and types[0] != types[-1]:
            raise TypeError(
                f"Branches of a conditional give tensors of different types: {types[0]} and {types[-1]}. Use `tf.cast`."
            )
        found.append(_shapes(results))
        if len(found[0]) == len(found[-1]) and found[0] != found[-1]:
            raise ConcreteValueRequiredError(
                "Branches give tensors of different shapes, which XLA's conditionals cannot."
            )
        return results

    return restore_dict_order(_control_flow.branch(index, [functools.partial(run, fn) for fn in branches]))


def _shapes(structure: Any) -> list[Any]:
    return [jnp.shape(leaf) for leaf in jax.tree.leaves(structure)]


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return `true_fn()` if `pred` is true, else `false_fn()`.

    While a function is traced and `pred` depends on its tensors, both are traced, return the same structure, and may
    assign variables. See https://www.tensorflow.org/api_docs/python/tf/cond.
    """
    if not callable(true_fn) or not callable(false_fn):
        raise TypeError("tf.cond needs functions `true_fn` and `false_fn`.")
    chosen = convert_to_tensor(pred)
    if not isinstance(chosen, Tracer):
        return true_fn() if bool(chosen) else false_fn()
    return _branch(chosen.astype(jnp.int32), [false_fn, true_fn])


def switch_case(
    branch_index: Any, branch_fns: Any, default: Callable[[], Any] | None = None, name: str | None = "switch_case"
) -> Any:
    """Return what the function with the given number returns; `default`, or the last one, if there is none.

    Args:
        branch_index: An int32 scalar.
        branch_fns: Functions; or a dictionary, or pairs, of numbers and functions.
        default: What to call for other numbers.
        name: Unused.
    """
    numbered = _numbered(branch_fns)
    other = default or numbered[max(numbered)]
    index = convert_to_tensor(branch_index)
    if not isinstance(index, Tracer):
        return numbered.get(int(index), other)()
    number = len(numbered)
    inside = (index >= 0) & (index < number)
    return _branch(jnp.where(inside, index, number), [*(numbered[i] for i in range(number)), other])


def _numbered(branch_fns: Any) -> dict[int, Callable[[], Any]]:
    pairs = isinstance(branch_fns, dict) or (branch_fns and isinstance(branch_fns[0], tuple))
    numbered = dict(branch_fns) if pairs else dict(enumerate(branch_fns))
    if sorted(numbered) != list(range(len(numbered))):
        raise ValueError(f"The numbers of branches must be 0 to {len(numbered) - 1}, got {sorted(numbered)}.")
    return numbered


def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = "case",
) -> Any:
    """Return what the function of the first true predicate returns; `default`, or the last one, if none is true."""
    (pred, fn), *rest = pred_fn_pairs
    if not rest and default is None:
        return fn()
    otherwise = default if not rest else lambda: case(rest, default)
    return cond(pred, fn, otherwise)


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: Any = None,
    name: str | None = None,
) -> Any:
    """Repeat `loop_vars = body(*loop_vars)` as long as `cond(*loop_vars)`.

    While a function is traced, shapes and types stay the same from one iteration to the next: where `shape_invariants`
    say that they may not, the function runs as Python, one operation after the other. Gradients of a loop without
    `maximum_iterations` compute parts of it again: XLA has no memory whose size is not known.
    See https://www.tensorflow.org/api_docs/python/tf/while_loop.
    """
    variables, tree = list(map(_tensors, loop_vars)), type(loop_vars)
    step = lambda *values: _as_list(body(*values), len(values))
    if shape_invariants is not None:
        step = _of_fixed_shapes(step)
    if not _is_traced(variables):
        result = _eager_loop(cond, step, variables, maximum_iterations)
    elif maximum_iterations is None:
        result = _control_flow.while_loop(lambda *values: convert_to_tensor(cond(*values)), step, variables)
    else:
        result = _bounded_loop(cond, step, variables, static_int(maximum_iterations, "maximum_iterations"))
    return tree(result) if tree in (list, tuple) else result


def _as_list(values: Any, number: int) -> list[Any]:
    listed = [values] if number == 1 and not isinstance(values, list | tuple) else list(values)
    if len(listed) != number:
        raise ValueError(f"The body of tf.while_loop must return {number} values like `loop_vars`, got {len(listed)}.")
    return list(map(_tensors, listed))


def _of_fixed_shapes(step: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Let a step whose results have other shapes than its arguments run as Python: loops of a program have fixed shapes."""

    def checked(*values: Any) -> list[Any]:
        results = step(*values)
        if _shapes(list(values)) != _shapes(results) and _is_traced(values):
            raise ConcreteValueRequiredError("A variable of tf.while_loop changes its shape, which XLA's loops cannot.")
        return results

    return checked


def _eager_loop(cond: Any, step: Any, variables: list[Any], maximum: Any) -> list[Any]:
    iterations = 0
    while (maximum is None or iterations < maximum) and bool(cond(*variables)):
        variables = step(*variables)
        iterations += 1
    return variables


def _bounded_loop(condition: Any, step: Any, variables: list[Any], maximum: int) -> list[Any]:
    def iteration(values: list[Any], _: Any) -> tuple[list[Any], None]:
        return cond(condition(*values), lambda: step(*values), lambda: values), None

    return _control_flow.scan(iteration, variables, None, length=maximum)[0]


def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """Return the results of `fn` on the entries along the first axis, stacked.

    `elems` may be a structure of tensors, and so may the results. `tf.vectorized_map` is faster where it works.
    `fn_output_signature` (or `dtype`), types or `tf.TensorSpec`s, says what Python's numbers become, and what there is
    if there are no entries; without it, results are like `elems`.
    """
    elems = _tensors(elems)
    if not jax.tree.leaves(elems):
        raise ValueError(
            "elems must be a Tensor or (possibly nested) sequence of Tensors. "
            f"Got {elems}, which does not contain any Tensors."
        )
    signature = next((given for given in (fn_output_signature, dtype) if given is not None), elems)
    result = lambda entry: _in_types(signature, fn(entry))
    # Texts have no loops in programs.
    if not _is_traced(elems) or any(isinstance(leaf, HostTensor) for leaf in jax.tree.leaves(elems)):
        return _stack([result(entry) for entry in _entries(elems)], signature)
    return _control_flow.scan(lambda _, entry: ((), result(entry)), (), elems)[1]


def vectorized_map(fn: Callable[[Any], Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """Return the results of `fn` on the entries along the first axis, computed together by `jax.vmap`."""
    return jax.vmap(lambda entry: _tensors(fn(entry)))(_tensors(elems))


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Return all values of `accumulated = fn(accumulated, entry)`, stacked.

    Args:
        fn: Takes the value so far and an entry of `elems`.
        elems: Structure of tensors.
        initializer: The first value; the first entry if None.
        parallel_iterations: Unused.
        back_prop: Unused.
        swap_memory: Unused.
        infer_shape: Unused.
        reverse: Go from the last entry to the first.
        name: Unused.
    """
    elems = _tensors(elems)
    flip = lambda structure: jax.tree.map(lambda t: jnp.flip(t, 0), structure) if reverse else structure
    first, rest = _first_and_rest(flip(elems), initializer)
    if _is_traced(elems, first):
        both = lambda value, entry: (_in_types(first, fn(value, entry)),) * 2
        results = _control_flow.scan(both, first, rest)[1]
    else:
        results = _stack(_accumulated(fn, first, rest)[1:], jax.tree.map(TensorSpec.from_tensor, first))
    if initializer is None:
        results = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), first, results)
    return flip(results)


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Return the last value of `accumulated = fn(accumulated, entry)`; arguments as for `scan`."""
    first, rest = _first_and_rest(_tensors(elems), initializer)
    if _is_traced(rest, first):
        return _control_flow.scan(lambda value, entry: (_tensors(fn(value, entry)), ()), first, rest)[0]
    return _accumulated(fn, first, rest)[-1]


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Return the value that `foldl` gives from the last entry to the first."""
    return foldl(fn, jax.tree.map(lambda t: jnp.flip(t, 0), _tensors(elems)), initializer)


def _first_and_rest(elems: Any, initializer: Any) -> tuple[Any, Any]:
    if initializer is not None:
        return _tensors(initializer), elems
    return jax.tree.map(lambda t: t[0], elems), jax.tree.map(lambda t: t[1:], elems)


def _entries(elems: Any) -> list[Any]:
    number = jax.tree.leaves(elems)[0].shape[0]
    return [jax.tree.map(lambda t, i=i: t[i], elems) for i in range(number)]


def _accumulated(fn: Callable[[Any, Any], Any], first: Any, elems: Any) -> list[Any]:
    values = [first]
    for entry in _entries(elems):
        values.append(_in_types(first, fn(values[-1], entry)))
    return values


def _in_types(signature: Any, results: Any) -> Any:
    """Return results as tensors: Python's numbers in the types of a signature of the same structure."""
    tensor = lambda like, value: convert_to_tensor(value, None if is_tensor(value) else _type(like))
    return map_structure(tensor, signature, results)


def _type(like: Any) -> Any:
    return as_dtype(getattr(like, "dtype", like))


def _stack(results: list[Any], signature: Any) -> Any:
    """Return results stacked; if there are none, no entries of the shapes, if it has any, and types of a signature."""
    if not results:
        return map_structure(lambda like: zeros((0, *_entry_shape(like)), _type(like)), signature)
    return map_in_order(lambda *leaves: stack(leaves), *results)


def _entry_shape(like: Any) -> tuple[int, ...]:
    known = isinstance(like, TensorSpec) and like.shape.is_fully_defined()
    return tuple(like.shape) if known else ()
