"""What runs how in a dataset: which of its steps take many rows at once, are compiled, or run in Python for each element."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tfdist_jax.compat.tensorflow._platform._errors import OpError
from tfdist_jax.compat.tensorflow.data import _mapping, _plan
from tfdist_jax.compat.tensorflow.data._batching import Batch
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._plan import Plan, Rows
from tfdist_jax.compat.tensorflow.data._written import OnDisk


def explain(plan: Plan) -> str:
    """Return the calls that make a plan, each with how it runs; functions are traced for the first element."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    parent = getattr(plan, "parent", None)
    if parent is not None:
        yield from _lines(parent)
    first, *rest = _plan.call_lines(plan)
    indent = "" if parent is None else "  "
    yield f"{indent}{'' if parent is None else '.'}{first}"
    yield from (f"{indent}{line}" for line in rest)
    yield f"{indent}    # {_explain_step(plan)}"


def _explain_step(plan: Any) -> str:
    if isinstance(plan, OnDisk):
        return plan.explain_files()
    if isinstance(plan, _mapping.MapRows):
        many = plan.at_once()
        return f"compiled, for {many} rows at once" if many > 1 else "compiled, for a row or a batch at once"
    if isinstance(plan, Rows):
        return "rows by their positions: nothing is got before it is needed"
    if isinstance(plan, Batch) and isinstance(plan.parent, Rows):
        return "rows of a batch at once"
    parameters = [getattr(plan, field.name) for field in dataclasses.fields(plan)]
    for parameter in parameters:
        if isinstance(parameter, ElementFunction):
            return _explain_function(parameter, plan)
        if isinstance(parameter, _mapping.DatasetFunction):
            return "in Python, a dataset for each element"
    return "element by element, as arrays of NumPy"


def _explain_function(function: ElementFunction, plan: Any) -> str:
    try:
        return function.explain(_mapping.first_of(plan.parent), is_ahead=getattr(plan, "is_ahead", False))
    except (TypeError, ValueError, ArithmeticError, OpError) as error:
        return f"not known: the first element is an error, {type(error).__name__}: {error}".splitlines()[0]
