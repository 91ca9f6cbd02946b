"""A layer's derivative in parts: what its forward pass saves, and what its backward pass makes of that, now or later."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun


@final
class Pullback:
    """The derivative of `fn(params, x, others) -> (y, aux)` by its parameters and by the floating numbers of `x`.

    What the forward pass saves is what depends on `x` and is needed; what the derivative takes of parameters and of others it gets from
    these, and what it takes of what is computed from these alone is computed again.

    Attributes:
        cotangents: The shapes of the floating numbers of `y`.
        aux: The shapes of `aux`.
    """

    def __init__(self, fn: Callable[[Any, Any, Any], Any], params: Any, x: Any, others: Any) -> None:
        """Trace the function.

        Args:
            fn: The function.
            params: Shapes of its parameters.
            x: Shapes of its input.
            others: Shapes of other arguments, by which it is not differentiated.
        """
        trees: list[Any] = []

        def forward(params: Any, x: Any, others: Any) -> tuple[Any, list[Any]]:
            floats, join = take_floats(x)

            def run(params: Any, floats: Any) -> tuple[Any, Any]:
                y, aux = fn(params, join(floats), others)
                return take_floats(y)[0], (y, aux)

            _, pull_back, results = jax.vjp(run, params, floats, has_aux=True)
            leaves, tree = jax.tree.flatten(pull_back)
            trees.append(tree)
            return results, leaves

        self._program, (results, _) = jax.make_jaxpr(forward, return_shape=True)(params, x, others)
        self._tree, self._results = trees[-1], jax.tree.structure(results)
        y, self.aux = results
        num_params, num_x, num_y = (len(jax.tree.leaves(tree)) for tree in (params, x, results))
        jaxpr = self._program.jaxpr
        self._y, self._needed = jaxpr.outvars[:num_y], jaxpr.outvars[num_y:]
        inputs = jaxpr.invars[num_params : num_params + num_x]
        self._given = [var for var in jaxpr.invars if var not in {*inputs}]
        follow = dependent(jaxpr.eqns, inputs)
        self._saved = [*dict.fromkeys(var for var in self._needed if not isinstance(var, Literal) and var in follow)]
        self._args = params, x, others
        self.cotangents = take_floats(y)[0]

    @property
    def saved(self) -> list[jax.ShapeDtypeStruct]:
        """The shapes of what a forward pass saves."""
        return _shapes(self._saved)

    def run(self, params: Any, x: Any, others: Any, *, has_effects: bool = True) -> tuple[Any, list[jax.Array]]:
        """Return `(y, aux)`, and what a backward pass needs of `x`; without what has effects if it is computed again."""
        given, wanted = jax.tree.leaves((params, x, others)), [*self._y, *self._saved]
        results = run_part(self._program, self._program.jaxpr.invars, given, wanted, has_effects=has_effects)
        return self._results.unflatten(results[: len(self._y)]), results[len(self._y) :]

    def pull_back(self, params: Any, others: Any, saved: Sequence[jax.Array], cotangent: Any) -> tuple[Any, Any]:
        """Return the gradients by the parameters, and those by the floating numbers of `x`.

        Args:
            params: The parameters, as in the forward pass.
            others: As there.
            saved: What it has saved.
            cotangent: The cotangents of the floating numbers of `y`, a list.
        """
        known = [*self._given, *self._saved]
        needed = [var for var in self._needed if not isinstance(var, Literal)]
        given = [*jax.tree.leaves((params, others)), *saved]
        found = dict(zip(needed, run_part(self._program, known, given, needed), strict=True))
        leaves = [var.val if isinstance(var, Literal) else found[var] for var in self._needed]
        return jax.tree.unflatten(self._tree, leaves)(cotangent)

    def split(self) -> "SplitPullback":
        """Return the backward pass in two parts."""
        return SplitPullback(self, *self._args)


@final
class SplitPullback:
    """A backward pass in two parts: first the gradients by the input, and by the parameters when there is time for that."""

    def __init__(self, pullback: Pullback, params: Any, x: Any, others: Any) -> None:
        """Trace the backward pass."""
        self._params = jax.tree.structure(params)
        num_x = len(take_floats(x)[0])

        def backward(params: Any, others: Any, saved: Any, cotangent: Any) -> tuple[Any, Any]:
            of_params, of_x = pullback.pull_back(params, others, saved, cotangent)
            return jax.tree.leaves(of_x), jax.tree.leaves(of_params)

        flat = jax.make_jaxpr(backward)(params, others, pullback.saved, pullback.cotangents)
        program = jax.make_jaxpr(_inlined(flat))(*flat.in_avals)
        jaxpr = program.jaxpr
        num_given = len(jax.tree.leaves((params, others)))
        self._program = program
        self._given = jaxpr.invars[:num_given]
        self._of_x, self._of_params = jaxpr.outvars[:num_x], jaxpr.outvars[num_x:]
        first = _needed_eqns(jaxpr.eqns, self._of_x)
        made = {*jaxpr.invars[num_given:]} | {var for eqn in first for var in eqn.outvars}
        done = {*map(id, first)}
        rest = [eqn for eqn in _needed_eqns(jaxpr.eqns, self._of_params) if id(eqn) not in done]
        used = dict.fromkeys(var for eqn in rest for var in _variables(eqn.invars))
        used |= dict.fromkeys(_variables(self._of_params))
        # What follows from the parameters alone is computed again.
        made &= dependent(jaxpr.eqns, jaxpr.invars[num_given:])
        self._kept = [var for var in used if var in made]

    @property
    def kept(self) -> list[jax.ShapeDtypeStruct]:
        """The shapes of what the first part leaves to the second."""
        return _shapes(self._kept)

    def pull_back_input(self, params: Any, others: Any, saved: Any, cotangent: Any) -> tuple[Any, list[jax.Array]]:
        """Return the gradients by the input, and what is kept for those by the parameters; arguments as `Pullback.pull_back`."""
        given = jax.tree.leaves((params, others, saved, cotangent))
        found = run_part(self._program, self._program.jaxpr.invars, given, [*self._of_x, *self._kept])
        return found[: len(self._of_x)], found[len(self._of_x) :]

    def pull_back_params(self, params: Any, others: Any, kept: Sequence[jax.Array]) -> Any:
        """Return the gradients by the parameters from what was kept."""
        given = [*jax.tree.leaves((params, others)), *kept]
        return self._params.unflatten(run_part(self._program, [*self._given, *self._kept], given, self._of_params))


def take_floats(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Return the floating numbers of a tree, and a function that puts others in their place."""
    leaves, structure = jax.tree.flatten(tree)
    are_floats = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]

    def join(floats: Sequence[Any]) -> Any:
        given = iter(floats)
        return structure.unflatten(
            next(given) if is_float else leaf for leaf, is_float in zip(leaves, are_floats, strict=True)
        )

    return [leaf for leaf, is_float in zip(leaves, are_floats, strict=True) if is_float], join


def run_part(
    program: ClosedJaxpr,
    known: Sequence[Any],
    given: Sequence[Any],
    wanted: Sequence[Any],
    *,
    has_effects: bool = False,
) -> list[Any]:
    """Return some variables of a program from others, without computing the rest.

    Args:
        program: The program.
        known: Variables of it.
        given: Their values.
        wanted: Variables of it that follow from these.
        has_effects: Whether to do what has effects, too, such as printing.
    """
    eqns = _needed_eqns(program.jaxpr.eqns, wanted, {*known}, has_effects=has_effects)
    jaxpr = program.jaxpr.replace(
        invars=[*known], outvars=[*wanted], eqns=eqns, debug_info=_without_names(program.jaxpr)
    )
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, program.consts))(*given)


def _without_names(jaxpr: Any) -> Any:
    return jaxpr.debug_info._replace(arg_names=None, result_paths=None)


def _needed_eqns(
    eqns: Sequence[JaxprEqn], wanted: Sequence[Any], known: Collection[Any] = (), *, has_effects: bool = False
) -> list[JaxprEqn]:
    """Return the equations that are needed for some variables, and those that have effects if these are."""
    needed = {*_variables(wanted)} - {*known}
    found: list[JaxprEqn] = []
    for eqn in reversed(eqns):
        if needed.intersection(eqn.outvars) or (has_effects and eqn.effects):
            found.append(eqn)
            needed |= {*_variables(eqn.invars)} - {*known}
    return found[::-1]


def dependent(eqns: Sequence[JaxprEqn], variables: Sequence[Any]) -> set[Any]:
    """Return the variables that depend on some."""
    found = {*variables}
    for eqn in eqns:
        if found.intersection(_variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _shapes(variables: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in variables]


_CALLS = {"jit", "pjit", "remat", "remat2", "checkpoint"}


def _inlined(program: ClosedJaxpr) -> Callable[..., list[Any]]:
    """Return the function of a program whose calls are put in place, so that it can be cut within them."""

    def run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        read = lambda atom: atom.val if isinstance(atom, Literal) else values[atom]
        for eqn in jaxpr.eqns:
            inner = eqn.params.get("jaxpr") if eqn.primitive.name in _CALLS else None
            given = [read(atom) for atom in eqn.invars]
            if inner is not None:
                results = run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), given)
            else:
                alone = jaxpr.replace(
                    constvars=[],
                    invars=[*dict.fromkeys(_variables(eqn.invars))],
                    outvars=[*eqn.outvars],
                    eqns=[eqn],
                    debug_info=_without_names(jaxpr),
                )
                results = jaxpr_as_fun(ClosedJaxpr(alone, ()))(*map(read, alone.invars))
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    return lambda *args: run(program.jaxpr, program.consts, args)
