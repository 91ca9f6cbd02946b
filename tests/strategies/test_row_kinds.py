"""What a program's results have to do with the rows of its batch, found from its operations."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tfdist_jax._global_batch._row_analysis import Direction, find_row_kinds
from tfdist_jax._global_batch._row_values import RowKind, line_of

PARAMS = {"w": jnp.ones((4, 3))}
TABLE = np.arange(4.0)
BATCH = {"x": jnp.ones((8, 4)), "y": jnp.ones(8, jnp.int32), "m": jnp.ones((8, 5))}


def losses(p, b):
    return optax.softmax_cross_entropy_with_integer_labels(b["x"] @ p["w"], b["y"])


def parts(b, count=4):
    return jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), b)


BLOCKS_ADDED_UP = [
    lambda p, b: jnp.subtract(*jnp.split(jnp.concatenate([b["x"], b["m"][:, :4]]), 2)) ** 2,
    lambda p, b: jnp.concatenate([b["x"], b["m"][:, :4]]).reshape(2, -1, 4)[0],
    lambda p, b: jnp.concatenate([b["x"], jnp.concatenate([b["x"], 2 * b["x"]])]).reshape(3, -1, 4)[1],
    lambda p, b: jnp.concatenate([b["x"], b["x"]])[:, 0] * jnp.tile(losses(p, b), 2),
    lambda p, b: losses(p, b).reshape(4, -1).mean(1),
    lambda p, b: jax.vmap(lambda part: losses(p, part).mean())(parts(b)),
    lambda p, b: jax.vmap(lambda part: (part["x"] @ p["w"] * 2.0 + p["w"][0]).mean())(parts(b)),
    lambda p, b: jax.lax.map(lambda part: jax.lax.map(lambda row: row["m"].sum(), part), parts(b)),
    lambda p, b: jax.lax.map(lambda part: jax.lax.map(lambda x: x.mean(), parts(part, 2)["m"]), parts(b)),
    lambda p, b: parts(b)["x"].reshape(2, 2, -1, 4).mean((2, 3)),
    lambda p, b: jax.lax.scan(lambda x, w: (jnp.tanh(x * w), None), parts(b)["x"], p["w"][:, 0])[0],
    lambda p, b: jax.lax.map(
        lambda part: jax.lax.scan(lambda x, w: (jnp.tanh(x * w), None), part["x"], p["w"][:, 0])[0].mean(), parts(b)
    ),
    lambda p, b: jax.lax.map(lambda x: x.mean(), parts(b)["x"]) / 4 + jnp.array([1.0]),
    lambda p, b: jax.lax.map(
        lambda each: (each[0]["x"] * jax.random.uniform(each[1], each[0]["x"].shape)).mean(),
        (parts(b), jax.random.split(jax.random.fold_in(jax.random.key(0), jax.lax.axis_index("data")), 4)),
    ),
    lambda p, b: b["x"].T.reshape(-1).reshape(2, 2, -1)[0],
    lambda p, b: jnp.where(parts(b)["m"] > 0, parts(b)["m"], 0),
    lambda p, b: jnp.einsum("brf,brg->fg", parts(b)["x"], parts(b)["m"]) / len(b["x"]),
]


# Numbers that follow from weights as well as from rows.
BY_WEIGHTS = [
    lambda w, n: jnp.where(w < 0, -n, n),
    lambda w, n: jax.lax.cond(w < 0, lambda: -n, lambda: n),
    lambda w, n: n + n * w,
    lambda w, n: n - n * w,
    lambda w, n: jnp.stack([n, n]).at[w.astype(int)].set(-n)[0],
    lambda w, n: jax.lax.dynamic_slice_in_dim(jnp.stack([n, -n]), w.astype(int), 1)[0],
    lambda w, n: jax.lax.scan(lambda n, w: (n * w, n), n, w[None])[0],
    lambda w, n: jax.lax.scan(lambda n, w: (-n, n), n, w[None].repeat(3))[1][2],
]


def divide_no_nan(total, count):
    """Divide as Keras's losses do."""
    return jnp.where(count == 0, 0, total / jnp.where(count == 0, 1, count))


def analyse(fn, *extra):
    def trace(factor):
        grow = lambda leaf: jax.ShapeDtypeStruct((factor * leaf.shape[0], *leaf.shape[1:]), leaf.dtype)
        return jax.make_jaxpr(fn)(PARAMS, jax.tree.map(grow, BATCH), *extra)

    return find_row_kinds(trace(1), lambda: trace(3), Direction(("data",), Fraction(3)))


KINDS = {
    "MEAN": [
        lambda p, b: losses(p, b).mean(),
        lambda p, b: losses(p, b).sum() / len(b["x"]),
        lambda p, b: losses(p, b).mean() + 1e-3 * jnp.sum(p["w"] ** 2),
        lambda p, b: jnp.vdot(b["m"], b["m"]) / len(b["m"]),
        lambda p, b: jax.lax.map(jax.checkpoint(lambda part: losses(p, part).mean()), parts(b)).mean(),
        lambda p, b: jax.lax.scan(lambda total, part: (total + losses(p, part).mean() / 4, None), 0.0, parts(b))[0],
        lambda p, b: jax.vmap(lambda x, y: (x @ p["w"])[y])(b["x"], b["y"]).mean(),
        lambda p, b: jax.lax.map(lambda row: (row["x"] @ p["w"]).sum(), b).mean(),
        lambda p, b: losses(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), p), b).mean(),
        lambda p, b: jax.nn.log_softmax(b["x"] @ p["w"])[jnp.arange(len(b["y"])), b["y"]].mean(),
        lambda p, b: jnp.where(b["m"][:, 0] > 0, losses(p, b), 0).mean(),
        lambda p, b: jnp.mean((b["x"] @ p["w"]) ** 2) / 3 - 2 * jnp.mean(b["m"]) + 1,
        lambda p, b: b["x"].mean(0),
        lambda p, b: jax.lax.cond(p["w"].sum() > 0, lambda: losses(p, b).mean(), lambda: 0.0),
        lambda p, b: jax.lax.fori_loop(0, 3, lambda i, total: total + losses(p, b).mean(), 0.0),
        lambda p, b: jax.jit(lambda b: losses(p, b).mean())(b),
        lambda p, b: jnp.concatenate([losses(p, b), losses(p, b)]).mean(),
        lambda p, b: (losses(p, b) / len(b["x"])).sum(),
        lambda p, b: (losses(p, b)[:, None] * (1 / len(b["x"])) * p["w"][0]).sum(),
        lambda p, b: losses(p, b) @ jnp.full(len(b["x"]), 1 / len(b["x"])),
        lambda p, b: jnp.zeros(3).at[b["y"]].add(jnp.where(b["y"] > 0, losses(p, b) / len(b["y"]), 0)),
        lambda p, b: jax.jit(lambda rows: rows / len(rows))(losses(p, b)).sum(),
        lambda p, b: jax.jit(lambda rows: rows * TABLE)(b["x"]).mean(),
        lambda p, b: jax.jit(lambda rows: rows * np.full(len(b["x"]), 1 / len(b["x"])))(losses(p, b)).sum(),
        *(lambda p, b, add=add: add(p, b).mean() for add in BLOCKS_ADDED_UP),
        lambda p, b: b["m"].sum() / jnp.prod(jnp.asarray(b["m"].shape)),
        lambda p, b: divide_no_nan(b["m"].sum(), jnp.prod(jnp.asarray(b["m"].shape)).astype(float)),
        lambda p, b: jnp.where(jnp.asarray(len(b["x"])) > 0, losses(p, b).mean(), losses(p, b).max()),
    ],
    "SUM": [
        lambda p, b: losses(p, b).sum(),
        lambda p, b: losses(p, b).sum() / 64,
        lambda p, b: ((b["x"] @ p["w"]).argmax(-1) == b["y"]).sum(),
        lambda p, b: jnp.zeros((3, 3)).at[b["y"], (b["x"] @ p["w"]).argmax(-1)].add(1),
        lambda p, b: jnp.bincount(b["y"], length=3),
        lambda p, b: losses(p, b).mean() * len(b["x"]),
        lambda p, b: jax.nn.one_hot(b["y"], 3).T @ b["x"],
        lambda p, b: jnp.ones(len(b["x"])).sum(),
    ],
    "COUNT": [
        lambda p, b: jnp.prod(jnp.asarray(b["m"].shape)),
        lambda p, b: len(b["x"]),
        lambda p, b: jnp.float32(len(b["x"])) * 2 * p["w"].sum(),
        lambda p, b: b["m"].size,
    ],
    "SAME": [
        lambda p, b: optax.tree.norm(p),
        lambda p, b: jnp.int32(7),
        lambda p, b: jax.lax.pmean(b["x"].mean(0), "data"),
        lambda p, b: len(b["x"]) / jnp.float32(len(b["y"])),
        lambda p, b: p["w"],
    ],
    "ROWS_PER_COUNT": [lambda p, b: losses(p, b) / len(b["x"])],
    "PLACES": [
        lambda p, b: jax.lax.map(lambda i: 2.0 * i, jnp.arange(len(b["x"]))),
        lambda p, b: jnp.arange(len(b["x"])),
        lambda p, b: jnp.asarray(np.arange(len(b["x"]))) * 2.0,
        lambda p, b: b["x"][:, 0].astype(int) + jnp.arange(len(b["x"])),
        lambda p, b: (b["x"][:, 0].astype(int) * jnp.arange(len(b["x"]))) * 1.0,
    ],
    "ROWS": [
        losses,
        lambda p, b: parts(b)["x"].reshape(-1, 4),
        lambda p, b: (jax.lax.map(jnp.tanh, parts(b)["x"]) * p["w"][:, 0]).reshape(-1, 4),
        lambda p, b: jnp.tanh(parts(b, 2)["m"].reshape(2, 2, -1, 5)).reshape(4, -1, 5).reshape(-1, 5),
        lambda p, b: jnp.tanh(b["m"].T.reshape(-1)).reshape(5, -1).T,
        lambda p, b: (b["x"].reshape(-1) * 2.0 + jnp.ones(b["x"].size)).reshape(-1, 4),
        lambda p, b: losses(p, b) / len(b["x"]) * len(b["x"]),
        lambda p, b: b["x"],
        lambda p, b: losses(p, b) > 0,
        lambda p, b: jnp.zeros(len(b["x"])),
        lambda p, b: jnp.zeros_like(b["x"]) * 2,
        lambda p, b: b["x"] - jax.lax.pmean(b["x"].mean(0), "data"),
    ],
    "SHARED": [lambda p, b: jax.lax.all_gather(losses(p, b), "data", tiled=True) * 2],
    "REPLICA": [lambda p, b: jax.lax.axis_index("data") + 1],
    "BLOCKS": [
        lambda p, b: jnp.split(losses(p, b), 2)[0].mean(),
        lambda p, b: jnp.subtract(*jnp.split(b["x"], 2)).mean(),
        lambda p, b: (jnp.concatenate([b["x"], b["m"][:, :4]])[:, 0] * jnp.repeat(losses(p, b), 2)).mean(),
        lambda p, b: jnp.concatenate([b["x"], b["x"]]).reshape(4, -1, 4)[0].mean(),
        lambda p, b: losses(p, b) @ jnp.tile(losses(p, b), 2).reshape(-1, 2).sum(1),
        lambda p, b: parts(b)["m"].mean((1, 2)),
        lambda p, b: losses(p, b).reshape(4, -1).mean(1)[0],
        lambda p, b: losses(p, b).reshape(4, -1).mean(1) @ jnp.arange(4.0),
        lambda p, b: (losses(p, b).reshape(4, -1) * jnp.arange(4.0)[:, None]).sum(),
        lambda p, b: jax.lax.map(lambda part: losses(p, part).mean(), parts(b)),
        lambda p, b: jax.vmap(lambda part: losses(p, part).mean())(parts(b)),
        lambda p, b: jax.lax.scan(lambda last, part: (losses(p, part).mean(), None), 0.0, parts(b))[0],
        lambda p, b: jax.lax.scan(lambda mean, part: (0.9 * mean + losses(p, part).mean(), None), 0.0, parts(b))[0],
        lambda p, b: jax.lax.scan(
            lambda total, each: (total + each[0] * losses(p, each[1]).mean(), None), 0.0, (jnp.arange(4.0), parts(b))
        )[0],
        lambda p, b: losses(p, jax.tree.map(lambda leaf: leaf[1], parts(b))).mean(),
        lambda p, b: jax.lax.pmean(losses(p, b).reshape(4, -1).mean(1), "data"),
        lambda p, b: losses(p, b).reshape(2, -1, 2).swapaxes(1, 2).reshape(-1),
        lambda p, b: b["x"].T.reshape(-1).reshape(2, 2, 2, -1)[:, :, 0].mean(),
        lambda p, b: jax.lax.fori_loop(0, 4, lambda i, total: total + parts(b)["m"][i].mean(), 0.0),
        lambda p, b: jax.jit(lambda rows: rows.reshape(4, -1).mean(1))(losses(p, b)),
        lambda p, b: jax.lax.map(lambda x: x.sum(), b["x"].reshape(4, -1, 4)) * 2,
        lambda p, b: jnp.cumsum(losses(p, b).reshape(4, -1).mean(1)).sum(),
        lambda p, b: jnp.einsum("brf,fg->bg", b["x"].reshape(4, -1, 4), p["w"]),
        lambda p, b: jax.lax.map(lambda x: x * 2, losses(p, b).reshape(-1, 4).T.reshape(-1)),
    ],
    "OTHER": [
        lambda p, b: jnp.asarray(np.full(len(b["x"]), len(b["x"]))),
        lambda p, b: p["w"].reshape(-1)[len(b["x"]) % 5],
        lambda p, b: jnp.pad(p["w"][0], (len(b["x"]) % 5, 4 - len(b["x"]) % 5)),
        lambda p, b: b["m"].sum() / (jnp.prod(jnp.asarray(b["m"].shape)) - 1),
        # Other parts of the batch may have fewer rows than those that are compared.
        lambda p, b: jnp.where(jnp.asarray(len(b["x"])) > 3, losses(p, b).mean(), losses(p, b).max()),
        lambda p, b: losses(p, b).sum() / jnp.maximum(jnp.asarray(len(b["x"])), 4),
        lambda p, b: losses(p, b).mean() * (jnp.asarray(len(b["x"])) > 3),
        lambda p, b: jnp.where(jnp.asarray(len(b["x"])) > 12, losses(p, b).mean(), losses(p, b).max()),
        lambda p, b: jax.lax.fori_loop(0, 3, lambda i, count: count - 1, jnp.asarray(len(b["x"]))),
        lambda p, b: jax.lax.fori_loop(
            0, 9, lambda i, left: jnp.where(left > 0, left - 1, 40), jnp.asarray(len(b["x"]))
        ),
        *(
            lambda p, b, choose=choose: jnp.where(
                choose(p["w"][0, 0], jnp.asarray(len(b["x"]), float)) > 0.5, losses(p, b).mean(), losses(p, b).max()
            )
            for choose in BY_WEIGHTS
        ),
        lambda p, b: jax.lax.while_loop(lambda n: n > 5, lambda n: n - 2, jnp.asarray(len(b["x"]))),
        lambda p, b: losses(p, b).max(),
        lambda p, b: (losses(p, b) / len(b["x"])).mean(),
        lambda p, b: losses(p, b).sum() / max(len(b["x"]), 12),
        lambda p, b: jnp.arange(len(b["x"])).sum(),
        lambda p, b: losses(p, b) @ jnp.arange(1.0, len(b["x"]) + 1),
        lambda p, b: b["x"] @ b["x"].T,
        lambda p, b: b["x"].T,
        lambda p, b: jnp.sqrt(losses(p, b).mean()),
        lambda p, b: (losses(p, b)[:, None] * b["m"]).sum() / b["m"].sum(),
        lambda p, b: losses(p, b).sum() + jnp.sum(p["w"] ** 2),
        lambda p, b: losses(p, b).sum() / jnp.maximum(b["m"].sum(), 1),
        lambda p, b: jnp.mean(losses(p, b), where=b["m"][:, 0] > 0),
        lambda p, b: (b["x"] @ p["w"]).var(),
        lambda p, b: jnp.median(losses(p, b)),
        lambda p, b: losses(p, b)[:-1].mean(),
        lambda p, b: losses(p, b)[0],
        lambda p, b: jax.ops.segment_sum(losses(p, b), jnp.arange(len(b["x"])) % 4, 4),
        lambda p, b: losses(p, b).sum() / (len(b["x"]) - 1),
        lambda p, b: losses(p, b).mean() ** 2,
        lambda p, b: jax.lax.scan(lambda total, x: (total + x, None), jnp.zeros(4), b["x"])[0],
        lambda p, b: jax.lax.cond(losses(p, b).mean() > 0, lambda: 1.0, lambda: 0.0),
        lambda p, b: jax.lax.while_loop(lambda total: total < losses(p, b).sum(), lambda total: total + 1, 0.0),
        lambda p, b: losses(p, b).sum().astype(int),
        lambda p, b: losses(p, b).mean() * jax.lax.axis_index("data"),
        lambda p, b: jax.lax.ppermute(losses(p, b).mean(), "data", [(0, 1)]),
    ],
}


@pytest.mark.parametrize(("kind", "i"), [(kind, i) for kind, fns in KINDS.items() for i in range(len(fns))])
def test_kinds_of_results(kind, i):
    found = []
    in_a_replica = lambda _: found.append(analyse(KINDS[kind][i])) or 0.0
    jax.eval_shape(jax.vmap(in_a_replica, axis_name="data"), jnp.zeros(8))
    (kinds,) = found
    assert kinds.values is not None, kinds.why_not
    assert [value.kind.name for value in kinds.values] == [kind]


def test_what_is_known_of_shapes_calls_nothing_and_is_small(capfd):
    def fn(p, b):
        count = jnp.asarray(len(b["x"]))
        jax.debug.print("count {}", count * 2)
        jax.pure_callback(
            lambda value: pytest.fail(f"called with {value}"), jax.ShapeDtypeStruct((), count.dtype), count
        )
        return (jnp.broadcast_to(1 / count, (1000, 1000))[0, 0] * losses(p, b)).sum()

    assert [value.kind.name for value in analyse(fn).values] == ["MEAN"]
    jax.effects_barrier()
    assert capfd.readouterr().out == ""


RELATING = {
    "statistics": lambda p, b: (b["x"] - b["x"].mean(0)).mean(),
    "pairs": lambda p, b: optax.softmax_cross_entropy_with_integer_labels(
        b["x"] @ b["x"].T, jnp.arange(len(b["x"]))
    ).mean(),
    "the other way round": lambda p, b: ((b["x"] + b["x"][::-1]) @ p["w"]).mean(),
    "halves": lambda p, b: (b["x"][: len(b["x"]) // 2] - b["x"][len(b["x"]) // 2 :]).mean(),
    "the largest": lambda p, b: jax.lax.top_k(losses(p, b), len(b["x"]) // 2)[0].mean(),
    "in order": lambda p, b: (jnp.sort(losses(p, b)) * jnp.arange(len(b["x"]))).mean(),
    "one after another": lambda p, b: jnp.cumsum(losses(p, b)).mean(),
    "the number of rows": lambda p, b: (losses(p, b) * len(b["x"])).mean(),
    "a power of the number of rows": lambda p, b: jnp.exp(losses(p, b) / len(b["x"])).mean(),
    "the place of a row": lambda p, b: (losses(p, b) * jnp.arange(len(b["x"]))).mean(),
    "the first places": lambda p, b: jnp.where(jnp.arange(len(b["x"])) < 3, losses(p, b), 0).mean(),
    "places up to a row's number": lambda p, b: jnp.where(
        jnp.arange(len(b["x"])) < b["x"][:, 0].astype(int), losses(p, b), 0
    ).mean(),
    "a row's number and its place": lambda p, b: jnp.where(
        b["x"][:, 0].astype(int) + jnp.arange(len(b["x"])) < 7, losses(p, b), 0
    ).mean(),
    "the place beside a row": lambda p, b: jnp.concatenate(
        [b["x"], 1.0 * jnp.arange(len(b["x"]))[:, None]], axis=1
    ).mean(),
    "places over their number": lambda p, b: (losses(p, b) * (jnp.arange(len(b["x"])) / len(b["x"]))).mean(),
    "places and their number": lambda p, b: (losses(p, b) * (len(b["x"]) - jnp.arange(len(b["x"])))).mean(),
    "what is at a row's place in it": lambda p, b: jax.vmap(lambda x, i: x[i])(
        b["x"], jnp.arange(len(b["x"])) % 4
    ).mean(),
    "what is written at a row's place in it": lambda p, b: jax.vmap(lambda x, i: x.at[i].set(1))(
        b["x"], jnp.arange(len(b["x"])) % 4
    ).mean(),
    "a part of a row from its place on": lambda p, b: jax.vmap(lambda x, i: jax.lax.dynamic_slice(x, (i,), (2,)))(
        b["x"], jnp.arange(len(b["x"]))
    ).mean(),
    "what is at a row's place along it": lambda p, b: jnp.take_along_axis(
        b["x"], jnp.arange(len(b["x"]))[:, None] % 4, 1
    ).mean(),
    "one or the other": lambda p, b: jax.lax.cond(
        p["w"].sum() > 0, lambda: 1.0 * jnp.arange(len(b["x"])), lambda: losses(p, b)
    ).mean(),
    "places, then rows": lambda p, b: jax.lax.scan(
        lambda before, _: (losses(p, b), before), 1.0 * jnp.arange(len(b["x"])), None, length=3
    )[1].mean(),
    "places, row by row": lambda p, b: jax.lax.map(
        lambda row: (row[0] * row[1]).sum(), (b["x"], jnp.arange(len(b["x"])))
    ).mean(),
    "what is at a place, row by row": lambda p, b: jax.lax.map(
        lambda row: row[0][row[1] % 4], (b["x"], jnp.arange(len(b["x"])))
    ).mean(),
    "the first places, row by row": lambda p, b: jax.lax.map(
        lambda row: jax.lax.cond(row[1] > 3, lambda: row[0].sum(), lambda: 0.0), (b["x"], jnp.arange(len(b["x"])))
    ).mean(),
    "rows that are counted": lambda p, b: jax.lax.scan(lambda i, x: (i + 1, i * x), 0, b["x"])[1].mean(),
    "weights that fall from row to row": lambda p, b: jax.lax.scan(lambda w, x: (w / 2, w * x), 1.0, b["x"])[1].mean(),
    "the first row": lambda p, b: jax.lax.scan(lambda is_first, x: (False, x * is_first), True, b["x"])[1].mean(),
    "the number of rows, row by row": lambda p, b: jax.lax.map(lambda x: x * len(b["x"]), b["x"]).mean(),
    "over the number of rows, row by row": lambda p, b: jax.lax.map(lambda x: x / len(b["x"]), b["x"]).sum(),
    "counted rows, row by row": lambda p, b: jax.lax.map(lambda x: x * jnp.ones(len(b["x"])).sum(), b["x"]).mean(),
    "the number of rows in a branch, row by row": lambda p, b: jax.lax.map(
        lambda x: jax.lax.cond(x.sum() > 0, lambda: x * len(b["x"]), lambda: x), b["x"]
    ).mean(),
    "the number of rows in a jitted function, row by row": lambda p, b: jax.lax.map(
        lambda x: jax.jit(lambda x: x * np.full(4, len(b["x"])))(x), b["x"]
    ).mean(),
    "the number of rows as an exponent": lambda p, b: (losses(p, b) ** len(b["x"])).mean(),
    "the number of rows as an exponent, row by row": lambda p, b: jax.lax.map(
        lambda x: x ** len(b["x"]), b["x"]
    ).mean(),
    "a column by the number of rows": lambda p, b: jnp.tile(b["x"], 10)[:, len(b["x"]) :][:, :2].mean(),
    "the number of rows for each": lambda p, b: jax.lax.map(lambda x: jnp.float32(len(b["x"])), b["x"]).mean(),
    "places that are too large for their type": lambda p, b: b["x"][
        jnp.arange(len(b["x"])).astype("int4").astype("int32"), 0
    ].mean(),
    "rows picked, at a row's place": lambda p, b: jnp.tile(b["x"], 10)[
        b["y"].astype("uint32"), jnp.arange(len(b["y"]))
    ].mean(),
    "the first rows": lambda p, b: b["x"][jax.lax.broadcasted_iota("uint32", (len(b["x"]), 3), 1)].mean(),
    "the other way round, by constants": lambda p, b: b["x"][np.arange(len(b["x"]))[::-1].copy(), 0].mean(),
    "a row and the next": lambda p, b: jax.lax.scan(
        lambda i, _: (i + 1, b["x"][i, 0]), jnp.arange(len(b["x"])), length=2
    )[1].mean(),
    "the row before": lambda p, b: b["x"][jnp.arange(len(b["x"])) - 1].mean(),
    "half of the rows": lambda p, b: b["x"][jnp.arange(len(b["x"]) // 2), 0].mean(),
    "a row's place, of two": lambda p, b: b["x"][jnp.arange(len(b["x"])), jnp.arange(len(b["x"])) % 4].mean(),
    "a row for some places": lambda p, b: (losses(p, b) + jnp.eye(len(b["x"]), 5).sum(1)).mean(),
    "statistics, row by row": lambda p, b: jax.lax.map(lambda x: ((x - b["x"].mean(0)) ** 2).sum(), b["x"]).mean(),
    "a row written": lambda p, b: losses(p, b).at[0].set(0.0).mean(),
    "rows multiplied": lambda p, b: (b["x"] @ p["w"]).at[:2].mul(2.0).mean(),
    "a row updated": lambda p, b: jax.lax.dynamic_update_slice(losses(p, b), jnp.ones(1), (0,)).mean(),
    "rows picked": lambda p, b: losses(p, b)[b["x"][:, 0].astype("uint32")].mean(),
    "rows added to": lambda p, b: jnp.zeros_like(losses(p, b)).at[b["x"][:, 0].astype("uint32")].add(1.0).mean(),
    "a table of places": lambda p, b: (losses(p, b) * jnp.zeros(len(b["x"])).at[0].set(1.0)).mean(),
    "pairs, row by row": lambda p, b: jax.lax.map(jnp.max, b["x"][:, None] * b["x"]).mean(),
    "rounds of a loop, by all rows": lambda p, b: jax.lax.while_loop(
        lambda x: jnp.abs(x).max() < 9, lambda x: 2 * x, b["x"]
    ).mean(),
    "rounds of a loop, by the first row": lambda p, b: jax.vmap(
        lambda x: jax.lax.while_loop(lambda x: jnp.abs(x[0]) < jnp.abs(b["x"][0, 0]), lambda x: 2 * x, x)
    )(b["x"]).mean(),
    "other rows in a loop": lambda p, b: jax.vmap(
        lambda x: jax.lax.while_loop(lambda x: jnp.abs(x[0]) < 9, lambda x: x + b["x"].mean(0), x)
    )(b["x"]).mean(),
    "places in a loop": lambda p, b: jax.vmap(
        lambda x, place: jax.lax.while_loop(lambda x: x[0] < 9, lambda x: x + place, x)
    )(b["x"], jnp.arange(len(b["x"]))).mean(),
    "rounds of a loop, by place": lambda p, b: jax.vmap(
        lambda x, place: jax.lax.while_loop(lambda c: c[1] < place, lambda c: (2 * c[0], c[1] + 1), (x, 0))[0]
    )(b["x"], jnp.arange(len(b["x"]))).mean(),
    "rounds of a loop, by place, counted": lambda p, b: jax.vmap(
        lambda x: jax.lax.while_loop(
            lambda c: c[1] < jax.lax.axis_index("row"), lambda c: (2 * c[0], c[1] + 1), (x, 0)
        )[0],
        axis_name="row",
    )(b["x"]).mean(),
    "a place carried by a loop": lambda p, b: jax.vmap(
        lambda x, place: jax.lax.while_loop(
            lambda c: jnp.abs(c[0]).max() < 9, lambda c: (2 * c[0], 3 * c[1]), (x, 1.0 * place)
        )[1]
    )(b["x"], jnp.arange(len(b["x"]))).mean(),
    "places of rows in a loop": lambda p, b: jax.vmap(
        lambda x, eye: jax.lax.while_loop(lambda x: jnp.abs(x).max() < 9, lambda x: 2 * x + eye, x)
    )(b["x"], jnp.eye(len(b["x"]), 4)).mean(),
    "a state over rows": lambda p, b: jax.lax.scan(lambda h, x: (jnp.tanh(h + x), h), jnp.zeros(4), b["x"])[1].mean(),
}


@pytest.mark.parametrize("name", RELATING)
def test_operations_that_relate_rows_are_found(name):
    kinds = analyse(RELATING[name])
    assert kinds.relating and "test_row_kinds.py" in line_of(kinds.relating[0])


ITSELF = {
    "jnp.arange": lambda p, b: (b["x"] @ p["w"])[jnp.arange(len(b["y"])), b["y"]],
    "np.arange": lambda p, b: (b["x"] @ p["w"])[np.arange(len(b["y"])), b["y"]],
    "int16": lambda p, b: (b["x"] @ p["w"])[jnp.arange(len(b["y"])).astype("int16"), b["y"]],
    "a column": lambda p, b: b["x"][jnp.arange(len(b["y"])), 0],
    "all of a row": lambda p, b: b["x"][jnp.arange(len(b["y"]))],
    "two of a row": lambda p, b: b["x"][jnp.arange(len(b["y"]))[:, None], jnp.stack([b["y"], b["y"] + 1], 1)],
    "of three dimensions": lambda p, b: jnp.stack([b["x"], b["x"]], 1)[
        jnp.arange(len(b["y"]))[:, None], jnp.arange(2), b["y"][:, None]
    ],
    "the second dimension": lambda p, b: (b["x"] @ p["w"]).T[b["y"], jnp.arange(len(b["y"]))],
    "over their number": lambda p, b: (b["x"] / len(b["y"]))[jnp.arange(len(b["y"])), b["y"]] * len(b["y"]),
    "in a jitted function": lambda p, b: jax.jit(lambda x, y: x[jnp.arange(len(y)), y])(b["x"], b["y"]),
    "in a loop": lambda p, b: jax.lax.scan(
        lambda total, _: (total + b["x"][jnp.arange(len(b["y"])), b["y"]], None), jnp.zeros(len(b["y"])), length=3
    )[0],
    "written": lambda p, b: jnp.zeros((len(b["y"]), 3)).at[jnp.arange(len(b["y"])), b["y"]].set(1.0),
    "added to": lambda p, b: b["x"].at[jnp.arange(len(b["y"])), b["y"]].add(-1.0),
    "multiplied": lambda p, b: b["x"].at[jnp.arange(len(b["y"])), b["y"]].multiply(2.0),
    "along an axis": lambda p, b: jnp.put_along_axis(b["x"], b["y"][:, None], 2.0, 1, inplace=False),
    "its gradient": lambda p, b: jax.grad(lambda x: x[jnp.arange(len(b["y"])), b["y"]].sum())(b["x"]),
}


@pytest.mark.parametrize("name", ITSELF)
def test_a_row_that_points_to_itself_depends_on_no_other(name):
    kinds = analyse(ITSELF[name])
    assert not kinds.relating and [value.kind for value in kinds.values] == [RowKind.ROWS]


def fold_in_row_by_row(number):
    draw = lambda row, n: row[0] + jax.random.uniform(jax.random.fold_in(jax.random.key(0), number(row[1], n)))
    return lambda p, b: jax.lax.map(functools.partial(draw, n=len(b["x"])), (b["x"], jnp.arange(len(b["x"]))))


REPEATED = {
    "carried": lambda p, b: jax.lax.scan(
        lambda key, x: (jax.random.fold_in(key, 1), x + jax.random.uniform(key)), jax.random.key(0), b["x"]
    )[1],
    "of places": fold_in_row_by_row(lambda place, n: place),
    "of some places": fold_in_row_by_row(lambda place, n: jax.lax.cond(place > 2, lambda: 1, lambda: 0)),
    "of places and their number": fold_in_row_by_row(lambda place, n: place * n),
}


@pytest.mark.parametrize("name", REPEATED)
def test_random_numbers_that_each_replica_draws_in_a_loop_over_its_rows_are_found(name):
    kinds = analyse(REPEATED[name])
    assert kinds.repeated or kinds.relating


def test_loops_of_which_each_row_has_its_own_rounds_relate_nothing():
    """How many rounds there are is a number for each row, too."""
    grow = lambda x: jax.lax.while_loop(lambda c: jnp.abs(c[0]).max() < 9, lambda c: (2 * c[0], c[1] + 1), (x, 0))
    kinds = analyse(lambda p, b: (jax.vmap(grow)(b["x"]), jax.vmap(grow)(b["x"])[1].mean()))
    assert not kinds.relating
    assert [value.kind for value in kinds.values] == [RowKind.ROWS, RowKind.ROWS, RowKind.MEAN]
    across = analyse(lambda p, b: jax.vmap(grow, in_axes=1)(b["x"])[0])
    assert across.relating or across.values[0].kind is RowKind.OTHER


def test_a_program_that_is_another_one_says_so():
    longer = analyse(lambda p, b: b["x"].sum() if len(b["x"]) == 8 else b["x"].sum() + 1)
    assert longer.values is None and "other operations" in longer.why_not
    fixed = analyse(lambda p, b: b["x"] + jnp.ones((8, 4)))
    assert fixed.values is None and "raises TypeError" in fixed.why_not
