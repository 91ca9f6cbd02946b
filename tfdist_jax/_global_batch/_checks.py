"""Refuses functions of a batch of which what the replicas compute cannot be put together, and warns of what is not one device's."""

import warnings
from collections.abc import Mapping, Sequence

from jax.extend.core import ClosedJaxpr, JaxprEqn

from tfdist_jax._errors import RelatedRowsWarning
from tfdist_jax._global_batch._programs import equations_inside
from tfdist_jax._global_batch._results import How, Rule
from tfdist_jax._global_batch._row_analysis import RowKinds, draws_together
from tfdist_jax._global_batch._row_proportions import Compared
from tfdist_jax._global_batch._row_values import RowKind, line_of
from tfdist_jax._global_batch._split import Split
from tfdist_jax._sharding._mesh import SEQUENCE


def check_rows(kinds: RowKinds, split: Split) -> None:
    """Refuse what would wait for ever or repeat itself, and warn of what is not what one device computes."""
    parts = _describe_parts(split)
    if kinds.collectives and not split.is_even:
        raise ValueError(
            f"The function communicates between replicas, at {line_of(kinds.collectives[0])}, but they have different numbers of rows, "
            f"{split.sizes}: some would wait for ever. Let them have as many, with `strategy.put(batch, mask='mask')` or "
            "`strategy.prefetch(batches, mask='mask')`, which add a mask of the real rows to the batch; or leave the last batch out."
        )
    if kinds.repeated:
        raise ValueError(
            f"At {line_of(kinds.repeated[0])}, random numbers are drawn for each row from a key that is the same on all {parts}, "
            "so that each would draw the same. Pass a key of `jax.random.key` as an argument beside the batch: it is folded with the "
            "number of the replica, and of the part; or a key for each row, of `td.row_keys(key, batch)`, as a part of the batch."
        )
    if kinds.parted or (kinds.values is None and RowKind.PART in split.param_kinds):
        where = line_of(kinds.parted[0]) if kinds.parted else "a place that was not found"
        raise ValueError(
            f"At {where}, rows meet a parameter of which a replica has only a part, such as its experts: others have other parts. Use "
            "it in `td.run_experts`, in a function of `td.assume_exact` that communicates, or lay it out otherwise."
        )
    for line, eqn in {line_of(eqn): eqn for eqn in kinds.relating}.items():
        warnings.warn(
            f"At {line or 'a place that is not known'}, what is computed for a row depends on other rows. Each of {parts} sees "
            f"its own rows alone, so that results are not those of one device. {_remedy_of_relating(eqn, split)}",
            RelatedRowsWarning,
            stacklevel=2,
        )


def _remedy_of_relating(eqn: JaxprEqn, split: Split) -> str:
    if any(map(draws_together, [eqn, *equations_inside(eqn)])):
        return "Keys of 'rbg' draw for several rows what depends on all of them: make keys by jax.random.key(seed, impl='threefry2x32')."
    if split.is_staged:
        return "Statistics are those of a microbatch; with microbatches=1, those of a replica."
    return "BatchNorm takes axis_name=strategy.batch_axes for statistics of the whole batch."


def check_sizes(
    programs: Mapping[int, ClosedJaxpr], rules: Sequence[Rule], split: Split, compared: Compared | None, is_said: bool
) -> None:
    """Refuse a function that is another one for the rows of some replicas than for those of others, or for those of all.

    Args:
        programs: The function for each number of rows that some part of the batch has.
        rules: What becomes of each of its results.
        split: How the batch is split.
        compared: The function for two numbers of rows, from which one knows what its results are; None if nothing is known.
        is_said: Whether the function says itself of all results what they are.
    """
    most = max(programs)
    for size, jaxpr in programs.items():
        which = "all" if len(programs) == 1 else "some of the"
        given = f"With {size} row{'s' * (size > 1)}, as {which} {_describe_parts(split)} have,"
        if _shapes(jaxpr, rules) != _shapes(programs[most], rules):
            raise ValueError(
                f"{given} the function returns arrays of other shapes than with {most}: its results are not those of one device. "
                f"{_remedy(split)}"
            )
        if compared is None or (is_said and size == 1):
            continue
        if not compared.has_operations_of(size, jaxpr):
            raise ValueError(
                f"{given} the function does other operations than with {compared.rows}: its results are not those of one device. "
                f"{_remedy(split)}"
            )
        where = None if is_said else compared.find_other_number(size, jaxpr)
        if where is not None:
            raise ValueError(
                f"{given} a number at {where} is another one than follows from "
                f"{compared.rows} and {compared.total} rows: the function's results are not those of one device. {_SAY}"
            )


_SAY = (
    "Compute with numbers of rows that are in proportion, or say what the results are: return td.Sum(x), td.Mean(x), "
    "td.Mean(sum, weight) or td.Rows(x)."
)


def _remedy(split: Split) -> str:
    if len({part for size in split.sizes for part in split.part_sizes(size)}) == 1:
        return _SAY
    if split.accumulate > 1:
        return f"Give each replica a number of rows that {split.accumulate} divides."
    return (
        "Let all have as many rows, with `strategy.put(batch, mask='mask')` or `strategy.prefetch(batches, mask='mask')`, which "
        "add a mask of the real rows to the batch; or leave the last batch out."
    )


def _shapes(jaxpr: ClosedJaxpr, rules: Sequence[Rule]) -> list[tuple[int, ...]]:
    """Return the shapes of a program's results but for arguments that it returns, of entries of rows the rest."""
    pairs = [(aval.shape, rule) for aval, rule in zip(jaxpr.out_avals, rules, strict=True) if rule.source is None]
    return [shape[1:] if rule.how is How.ROWS else shape for shape, rule in pairs]


def _describe_parts(split: Split) -> str:
    return f"{split.num_parts} {'replicas' if split.accumulate == 1 else 'parts of the batch'}"


def check_accumulation(kinds: RowKinds, split: Split) -> None:
    """Refuse what would communicate about the rows of a part as if these were all of a replica's."""
    if split.accumulate > 1 and kinds.scaling:
        option = "microbatches" if split.is_staged else "accumulate"
        remedy = "Take microbatches=1" if split.is_staged else "Leave `accumulate` out"
        raise ValueError(
            f"The function communicates between replicas, at {line_of(kinds.scaling[0])}, but with `{option}={split.accumulate}` each sees "
            f"a part of its rows at a time: what comes of it is not that of the whole batch. {remedy}, or let the function compute with "
            "the rows that it sees."
        )


def check_tokens(kinds: RowKinds) -> None:
    """Refuse what would compute with the tokens that a device has as if these were all of a row's."""
    if kinds.relating:
        raise ValueError(
            f"At {line_of(kinds.relating[0]) or 'a place that is not known'}, what is computed for a token depends on other tokens or on "
            f"its place, but each device along {SEQUENCE!r} sees its own tokens alone. Attention is `td.attend`, places are "
            "`td.token_positions(tokens)`; shift tokens before they are put; what communicates by itself is wrapped in `td.assume_exact`."
        )
    if kinds.repeated:
        raise ValueError(
            f"At {line_of(kinds.repeated[0])}, random numbers are drawn for each token from a key that is the same on all devices along "
            f"{SEQUENCE!r}, so that each would draw the same. Pass a key of `jax.random.key` as an argument beside the batch, which is "
            "folded with the device's number."
        )
    if kinds.values is None:
        raise ValueError(
            f"Whether what is computed for a token depends on others is not known: {kinds.why_not}. Over {SEQUENCE!r}, a function has to "
            "be the same for any number of tokens."
        )
