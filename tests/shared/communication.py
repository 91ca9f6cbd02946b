"""What a compiled program communicates, as `strategy.explain` reads it."""

from tfdist_jax._explain._collectives import KINDS, find_collectives
from tfdist_jax._explain._hlo import parse_module

# How often a device sends in a ring what it gets from all others.
_SENT = {"all-reduce": 2, "all-to-all": 1, "all-gather": 1}


def compile_step(model, batch):
    """Return the compiled step of a model that has been fitted."""
    return model.train_function.lower(batch).compile()


def collectives_of(compiled, strategy):
    """Return the collectives of a program of the facade, as those of `Explanation`."""
    return find_collectives(parse_module(compiled.as_text()), strategy.native.mesh)


def sent_bytes(collectives):
    """Return how many bytes a device sends, in a ring."""
    return sum(_SENT[one.kind] * one.bytes * (one.group - 1) / one.group for one in collectives)


def sent_arrays(compiled):
    """Return pairs of a collective's kind and the type of an array that it gives."""
    ran = [one.instruction for one in parse_module(compiled.as_text()).executed()]
    return [(one.operation, array) for one in ran if one.operation in KINDS for array in one.arrays]
