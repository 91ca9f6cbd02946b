"""Random programs: what is said of their results is what comes of all rows, and of each replica's, one after another."""

import os
import random
import textwrap
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfdist_jax._global_batch._row_analysis import Direction, find_row_kinds
from tfdist_jax._global_batch._row_values import RowKind

NUM_PROGRAMS = int(os.environ.get("TFDIST_FUZZ", "5"))
FIRST_SEED = int(os.environ.get("TFDIST_FUZZ_SEED", "0"))
PROGRAMS_EACH = 10
ROWS, REPLICAS = 8, 3
NOTHING_SAID = {RowKind.OTHER, RowKind.BLOCKS, RowKind.PLACES, RowKind.INVERSE_COUNT}
# What operations make of what, by one letter each: a number for each row (r), four (m), a whole number (i); three numbers (v) or
# one (s) of all rows; n is the number of rows.
OPERATIONS = """
r(r): jnp.tanh({0}) | {0} / n | {0} * n | {0}[::-1] | jnp.cumsum({0}) | jnp.sort({0}) | {0} - {0}.mean() | jax.nn.softmax({0})
r(r): {0}.at[jnp.arange(n)].multiply(2) | jnp.clip({0}, -1, 1) | jax.jit(lambda x: x / len(x))({0}) | jnp.roll({0}, 1)
r(r): jnp.concatenate([{0}, {0}])[:n] | jnp.concatenate([{0}[1:], {0}[:1]]) | jnp.concatenate([{0}, {0}]).reshape(2, n)[1]
r(r): jax.grad(lambda x: (x**2).sum())({0}) | jax.grad(lambda x: (x**2).mean())({0}) | {0} + jax.random.uniform(KEY, (n,))
r(r): jax.lax.map(lambda x: x * 2, {0}.reshape(2, -1)).reshape(-1) | ({0}.reshape(2, -1) * jnp.arange(2)[:, None]).reshape(-1)
r(r): {0}.reshape(-1, 2).T.reshape(-1) | jnp.repeat({0}, 2).reshape(n, 2).sum(1) | jnp.tile({0}, 2).reshape(2, n).sum(0)
r(r): jnp.tile({0}, 2).reshape(n, 2).sum(1) | {0}.reshape(2, -1).mean(1).repeat(n // 2) | jnp.tri(n) @ {0}
r(r): jax.vmap(lambda x: jax.lax.while_loop(lambda c: jnp.abs(c) < 3, lambda c: 2 * c + 0.5, x))({0})
r(r): jax.lax.map(lambda x: x[0] * x[1], ({0}, jnp.arange(n)))
r(r): jax.lax.map(lambda x: jnp.where(x[0] > 3, x[1], 0), (jnp.arange(n), {0}))
r(r): jax.lax.map(lambda x: x[0] + jax.random.uniform(x[1]), ({0}, jax.random.split(KEY, n)))
r(r): jax.lax.scan(lambda c, x: (c + 1, c * x), 0, {0})[1] | jax.lax.scan(lambda c, x: (c + 1, x), 0, {0})[1]
r(r): jax.lax.scan(lambda c, x: (jax.random.fold_in(c, 1), x + jax.random.uniform(c)), KEY, {0})[1]
r(r): jax.lax.map(lambda x: x * n, {0}) | jax.lax.map(lambda x: x / n, {0}) | {0} ** (n % 5)
r(r): jax.lax.map(lambda x: jax.lax.cond(x > 0, lambda: x * n, lambda: x), {0}) | jax.lax.map(lambda x: x * jnp.ones(n).sum(), {0})
r(r): jax.lax.map(lambda x: x[0] + jax.random.uniform(jax.random.fold_in(KEY, x[1] * n)), ({0}, jnp.arange(n)))
r(rr): {0} * {1} | {0} + {1} | jax.lax.map(lambda x: x[0] * x[1] + 1, ({0}, {1}))
r(rr): jax.lax.scan(lambda c, _: ({1}, c), {0}, None, length=2)[1][1]
r(rr): jax.lax.fori_loop(0, 3, lambda i, c: c / 2 + {1}, {0}) | jax.lax.fori_loop(0, 3, lambda i, c: {1}, {0}) | {0} * {1}.max()
r(rs): {0} * {1} | {0} - {1} | {0} * jnp.sign({1}) | jax.lax.cond({1} > 0, lambda: {0}, lambda: -{0})
r(rs): jax.lax.scan(lambda c, x: (c / 2, x * c), {1}, {0})[1] | jax.lax.scan(lambda c, x: (c + x, x), {1}, {0})[1]
r(rs): jax.lax.scan(lambda c, x: (c, x * c), {1}, {0})[1] | jax.lax.scan(lambda c, x: (False, jnp.where(c, x, {1})), True, {0})[1]
r(rrs): jax.lax.cond({2} > 0, lambda: {0}, lambda: {1})
r(ri): jnp.where({1} > 1, {0}, 0) | {0}[{1} % n] | {0}.at[{1} % n].add(1) | {0} * (jnp.arange(n) < {1})
r(rv): jax.lax.scan(lambda c, x: (c, x * c.sum()), {1}, {0})[1] | jax.lax.dynamic_update_slice({0}, {1}, (0,))
r(m): {0}.sum(1) | {0}[:, 1] | {0}.max(-1) | {0}.reshape(-1)[::4] | {0}.reshape(-1)[:n] | {0}.T.reshape(-1)[:n] | {0}.reshape(-1, 4)[:, 0]
r(mi): {0}[jnp.arange(n), {1} % 4] | {0}[np.arange(n), {1} % 4] | jnp.take_along_axis({0}, ({1} % 4)[:, None], 1)[:, 0]
r(mi): jax.vmap(lambda a, b: a[b % 4])({0}, {1}) | jax.lax.map(lambda a: a[0][a[1] % 4], ({0}, {1}))
r(mi): jax.grad(lambda x: x[jnp.arange(n), {1} % 4].sum())({0}).sum(1) | {0}[jnp.arange(n) - 1, {1} % 4]
r(mi): jnp.stack([{0}, {0}], 1)[jnp.arange(n)[:, None], jnp.arange(2), ({1} % 4)[:, None]].sum(1)
r(mr): ({0} * {1}[:, None]).sum(1)
r(mv): {0}[:, :3] @ {1}
r(vi): {0}[{1} % 3]
r(i): {0} * 1.0 | jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(KEY, i)))({0})
r(s): jnp.full(n, {0})
r(): jnp.arange(n) * 1.0 | jnp.arange(n) / n | jnp.linspace(0, 1, n) | jnp.zeros(n) | jnp.full(n, 1 / n)
m(m): jnp.tanh({0}) | {0} - {0}.mean(0) | {0} - {0}.mean(1, keepdims=True) | jax.nn.softmax({0}) | jnp.sort({0}, 1) | jnp.cumsum({0}, 1)
m(m): {0}[:, ::-1] | {0} @ jnp.ones((4, 4)) | jnp.concatenate([{0}[:, :2], {0}[:, 2:]], 1) | {0}[jnp.arange(n)] | {0}.T.reshape(n, 4)
m(m): {0}.reshape(2, -1, 4).swapaxes(0, 1).reshape(n, 4) | {0}.T.T | jax.lax.map(lambda x: x * x.sum(), {0})
m(mm): {0} * {1} | ({0} @ {1}.T) @ {1}
m(mi): {0}.at[jnp.arange(n), {1} % 4].add(1) | {0}[{1} % n]
m(mr): {0} * {1}[:, None] | {0}.at[:, 1].set({1})
m(rr): jnp.stack([{0}, {1}, {0}, {1}], 1)
m(r): jnp.outer({0}, jnp.arange(4))
m(i): jax.nn.one_hot({0} % 4, 4, dtype=float) | jnp.zeros((n, 4)).at[jnp.arange(n), {0} % 4].set(1)
m(): jnp.eye(n, 4)
i(i): ({0} + 1) % 4 | {0} + jnp.arange(n) | {0} % n | {0} // 2 | {0} + n | jnp.where({0} < 0, {0} + n, {0}) | jnp.cumsum({0})
i(ii): ({0} * {1}) % 4 | jnp.where({0} < {1}, {0}, {1})
i(ri): jnp.where({0} > 0, {1}, 0)
i(r): {0}.astype(int) | ({0} > 0).astype(int) | jnp.argsort({0})
i(m): {0}.argmax(1)
i(): jnp.arange(n) | jnp.asarray(np.arange(n)) | jnp.full(n, n) | jnp.zeros(n, int) | n - 1 - jnp.arange(n)
s(r): {0}.mean() | {0}.sum() | {0}.sum() / n | {0}.max() | {0}[0] | jnp.var({0}) | {0}[: n // 2].mean() | jax.nn.logsumexp({0})
s(r): jax.lax.map(lambda x: x.mean(), {0}.reshape(2, -1)).mean() | jax.lax.fori_loop(0, n, lambda i, c: c + {0}[i], 0.0)
s(r): jax.lax.scan(lambda c, x: (c + x.sum(), None), 0.0, {0}.reshape(2, -1))[0]
s(r): jax.lax.scan(lambda c, x: (c / 2 + x.sum(), None), 0.0, {0}.reshape(2, -1))[0]
s(rr): {0} @ {1}
s(ri): jnp.where({1} > 1, {0}, 0).sum()
s(m): {0}.mean() | {0}.sum() | jnp.linalg.norm({0}) | ({0}.T @ {0})[0, 1]
s(i): {0}.sum() * 1.0
s(s): {0} * 2 | {0} / n | {0} * n | jnp.tanh({0}) | jax.lax.fori_loop(0, 3, lambda i, c: c + {0}, 0.0) | {0} * jnp.asarray(n)
s(ss): {0} + {1} | {0} * {1} | jnp.where({1} == 0, 0, {0} / jnp.where({1} == 0, 1, {1})) | jnp.where({0} > 0, {0}, {1})
s(v): {0}.sum() | {0}[1] | {0}[n % 5 - 3]
s(): jnp.float64(n)
r(r): jax.lax.associative_scan(jnp.add, {0}) | jax.checkpoint(lambda x: x * x)({0}) | jax.jvp(jnp.sin, ({0},), ({0},))[1]
r(r): jax.vmap(jax.grad(lambda x: x**3))({0}) | jax.lax.reduce_window({0}, 0.0, jax.lax.add, (3,), (1,), "SAME") | {0} - jnp.median({0})
r(r): jnp.convolve({0}, jnp.ones(3), "same") | {0} / {0}.sum() | {0} / jnp.sqrt(n) | jnp.where({0} > {0}.mean(), {0}, 0) | {0} / (n - 1)
r(r): jnp.pad({0}, (0, 1))[1:] | jnp.pad({0}, (0, 1))[:-1] | jnp.diff({0}, prepend=0) | jnp.flip({0})
r(r): jnp.delete({0}, 0, assume_unique_indices=True).mean() + {0}
r(r): jnp.searchsorted(jnp.arange(3.0), {0}) * 1.0 | jnp.searchsorted({0}, {0}) * 1.0
r(r): jnp.interp({0}, jnp.arange(4.0), jnp.arange(4.0) ** 2)
r(r): jax.vmap(lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + i * x, 0.0))({0}) | jax.lax.map(jnp.tanh, {0}, batch_size=4)
r(r): jax.lax.map(lambda i: {0}[i], jnp.arange(n)) | jax.vmap(lambda i: {0}[i])(jnp.arange(n))
r(r): jax.vmap(lambda i: {0}[i] * i)(jnp.arange(n))
r(rr): jnp.arctan2({0}, {1}) | jnp.maximum({0}, {1}) | jnp.outer({0}, {1}).sum(1) | jnp.diag(jnp.outer({0}, {1}))
r(rr): jnp.stack([{0}, {1}]).max(0)
r(rr): jnp.concatenate([{0}, {1}]).reshape(2, n).sum(0) | jnp.concatenate([{0}, {1}]).reshape(n, 2).sum(1) | jnp.hstack([{0}, {1}])[n:]
r(rs): jax.vmap(lambda x: jax.lax.cond(x > 0, lambda: x, lambda: {1}))({0}) | jnp.where({1} > 0, {0}, 0) | {0} / (1 + {1} ** 2)
r(ri): jax.vmap(lambda x, i: jax.lax.switch(i % 2, [lambda: x, lambda: -x]))({0}, {1}) | {0} * {1}
r(ri): {0}[jnp.where({1} > 1, jnp.arange(n), 0)]
r(ri): jax.vmap(lambda x, i: jax.lax.fori_loop(0, i % 4, lambda _, c: c * 2, x))({0}, {1}) | {0}[jnp.argsort({1})]
r(m): jnp.einsum("ij,ij->i", {0}, {0}) | jax.lax.map(lambda x: jax.lax.scan(lambda c, y: (c + y, None), 0.0, x)[0], {0})
r(m): {0}[jnp.arange(n), 2]
r(m): jax.lax.top_k({0}, 2)[0][:, 1] | jnp.linalg.norm({0}, axis=1) | {0}.ravel().reshape(n, -1).sum(1) | {0}.T[2]
r(m): {0}.T.ravel()[n : 2 * n]
r(m): {0}.reshape(n, 2, 2).transpose(1, 0, 2)[0].sum(1) | {0}.reshape(n, 2, 2).transpose(1, 0, 2).reshape(n, 4).sum(1)
m(m): jnp.roll({0}, 1, 1) | jnp.roll({0}, 1, 0) | jax.lax.map(lambda x: x[::-1], {0}) | jnp.vstack([{0}, {0}])[::2]
m(m): jnp.linalg.solve(jnp.eye(4) * 2, {0}.T).T
m(mi): jnp.take_along_axis({0}, jnp.stack([{1} % 4] * 4, 1), 1) | {0}.at[{1} % n].set(0) | {0}.at[jnp.arange(n), {1} % 4].max(0)
s(r): {0}.sum() / (n - 1) | {0}.sum() / jnp.sqrt(n) | {0}.mean(where={0} > 0) | jnp.median({0}) | jnp.prod({0}) | {0}[-1]
s(r): ({0} > 0).mean(dtype=float)
s(r): {0}.sum() / jnp.maximum(n, 10) | jnp.sum({0} * jnp.ones(n)) / jnp.ones(n).sum() | jnp.trapezoid({0})
s(r): jnp.average({0}, weights=jnp.arange(n))
s(rr): ({0} * {1}).sum() / {1}.sum() | jnp.corrcoef({0}, {1})[0, 1] | jnp.einsum("i,j->", {0}, {1}) | jnp.vdot({0}, {1}) / n
s(m): jnp.einsum("ij,ik->", {0}, {0}) | {0}.reshape(-1)[:5].sum() | {0}.mean(0).max() | {0}.sum() / {0}.size | {0}.sum() / {0}.shape[0]
v(mr): ({0}.T @ {1})[:3]
v(ir): jnp.zeros(3).at[{0} % 3].add({1}) | jax.ops.segment_sum({1}, {0} % 3, 3)
v(ir): jnp.zeros(3).at[{0} % 3].set({1}) | jnp.zeros(3).at[{0} % 3].max({1})
v(m): {0}.mean(0)[:3]
v(i): jnp.bincount({0} % 3, length=3) * 1.0
v(r): {0}[:3] | {0}.reshape(2, -1).mean(1)[jnp.array([0, 1, 0])]
v(v): jnp.tanh({0}) | {0} / n
v(vv): {0} + {1}
v(vs): {0} * {1} | jnp.where({1} > 0, {0}, -{0})
v(): jnp.arange(3.0)
"""
NAMES = {"jax": jax, "jnp": jnp, "np": np}


def read_operations():
    """The operations: what they make, of what, and how."""
    signatures = (line.split(": ", 1) for line in OPERATIONS.strip().splitlines())
    return [(head[0], head[2:-1], text.strip()) for head, texts in signatures for text in texts.split(" | ")]


def write_program(seed):
    """The text of a random program of which all steps are needed."""
    choose, operations = random.Random(seed), read_operations()
    types, steps = ["m", "i", "r", "v"], {}
    for number in range(4, 5 + choose.randint(2, 6)):
        # The last result is often one of all rows, such as a loss.
        made = "s" if number > 6 and choose.random() < 0.3 else None
        fitting = [each for each in operations if {*each[1]} <= {*types} and made in (None, each[0])]
        result, arguments, text = choose.choice(fitting)
        of_type = [[i for i, each in enumerate(types) if each == wanted] for wanted in arguments]
        chosen = [choose.choice(numbers[-3:]) for numbers in of_type]
        steps[number] = chosen, text.format(*(f"x{i}" for i in chosen))
        types.append(result)
    needed = {len(types) - 1}
    for number in reversed(steps):
        needed.update(steps[number][0] if number in needed else ())
    lines = [f"x{number} = {text}" for number, (_, text) in steps.items() if number in needed]
    return "\n".join([*lines, f"result = x{len(types) - 1}"])


def make_function(text):
    """The function of parameters and a batch whose text this is."""
    code = compile(text, "program", "exec")

    def fn(params, batch):
        known = {"n": len(batch["r"]), "x0": batch["m"], "x1": batch["i"], "x2": batch["r"], "x3": params}
        names = NAMES | known | {"KEY": jax.random.key(0)}
        exec(code, names)
        return names["result"]

    return fn


def is_what_is_said(kind, whole, parts):
    """Whether the results with all rows and with each replica's go together as those of a kind do."""
    is_near = lambda one: np.shape(one) == whole.shape and np.allclose(one, whole, rtol=1e-7, atol=1e-9, equal_nan=True)
    match kind:
        case RowKind.SAME | RowKind.ZERO:
            return all(is_near(part) for part in parts)
        case RowKind.SUM | RowKind.COUNT:
            return is_near(sum(parts))
        case RowKind.MEAN:
            return is_near(sum(parts) / REPLICAS)
        case RowKind.ROWS:
            return is_near(np.concatenate(parts))
        case RowKind.ROWS_PER_COUNT:
            return is_near(np.concatenate(parts) / REPLICAS)
    raise ValueError(kind)


def check(seed):
    """Fail if what is said of a random program is not so; return whether anything was."""
    text = write_program(seed)
    fn = make_function(text)
    random_numbers = np.random.default_rng(seed)
    total = ROWS * REPLICAS
    params = jnp.asarray(random_numbers.normal(size=3))
    batch = {
        "m": jnp.asarray(random_numbers.normal(size=(total, 4))),
        "i": jnp.asarray(random_numbers.integers(0, 4, total)),
        "r": jnp.asarray(random_numbers.normal(size=total)),
    }
    parts = [jax.tree.map(lambda leaf, i=i: leaf[i * ROWS :][:ROWS], batch) for i in range(REPLICAS)]
    trace = lambda batch: jax.make_jaxpr(fn)(params, batch)
    kinds = find_row_kinds(trace(parts[0]), lambda: trace(batch), Direction(("data",), Fraction(REPLICAS)))
    if kinds.values is None or kinds.relating or kinds.repeated or kinds.values[0].kind in NOTHING_SAID:
        return False
    whole, *results = (np.asarray(fn(params, rows)) for rows in [batch, *parts])
    kind = kinds.values[0].kind
    assert is_what_is_said(kind, whole, results), (
        f"{kind.name} is said of program {seed}:\n{textwrap.indent(text, '    ')}"
    )
    return True


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + PROGRAMS_EACH * NUM_PROGRAMS, PROGRAMS_EACH))
def test_what_is_said_of_random_programs_is_so(first):
    with jax.enable_x64():
        assert sum(check(seed) for seed in range(first, first + PROGRAMS_EACH))
