"""docs/native.md: what its examples train is what one device does, under every strategy.

The examples are taken from the page. Each section leaves `state` and `loss` of a training with `strategy`, on `batches`: here, others than
the page's. One device's are those of plain JAX.
"""

import doctest
import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

PAGE = Path(__file__).parents[2] / "docs" / "native.md"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
RULES = {"hidden/kernel": P(None, "tensor"), "hidden/bias": P("tensor"), "out/kernel": P("tensor")}
NEEDS = {"float16": ["bfloat16"]}
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored": td.Mirrored,
    "Mirrored on 3": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "FSDP": lambda: td.FSDP(min_size=8),
    "ZeRO1": lambda: td.ZeRO1(min_size=8),
    "HSDP": lambda: td.HSDP(shards=4, min_size=8),
    "TensorParallel": lambda: td.TensorParallel(4, RULES),
    "FSDP x tensor": lambda: td.Sharded({"fsdp": 2, "tensor": 4}, RULES, min_size=8),
    "data x FSDP x tensor": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES, min_size=8),
}
# Between them, they gather, scatter, reduce, and divide what is computed.
OFTEN = ["FSDP", "data x FSDP x tensor"]


class PlainJAX:
    """What a strategy does, without this library: one device, `jax.jit` and `jax.value_and_grad`."""

    batch_axes = None

    def init(self, make_state):
        return jax.jit(make_state)()

    def prefetch(self, batches):
        return iter(batches)

    def jit(self, step):
        return jax.jit(step)

    def value_and_grad(self, loss_fn, has_aux=True, accumulate=1):
        del accumulate  # The whole batch at once.

        def loss(*args):
            found, aux = loss_fn(*args) if has_aux else (loss_fn(*args), None)
            return (found[0] / found[1] if isinstance(found, tuple) else found), aux

        def compute(*args):
            (found, aux), grads = jax.value_and_grad(loss, has_aux=True)(*args)
            return ((found, aux) if has_aux else found), grads

        return compute


def make_batches(dtype=np.float64, sizes=(48, 13, 48)):
    random = np.random.default_rng(1)
    return [{"x": random.normal(size=(rows, 16)).astype(dtype), "y": random.integers(0, 4, rows)} for rows in sizes]


def examples_in(title):
    return [
        doctest.DocTestParser().get_examples(block)
        for block in re.findall(r"^```python\n(>>>.*?)^```", SECTIONS[title], re.MULTILINE | re.DOTALL)
    ]


def run_section(title, strategy, batches, dtype=np.float64, **given):
    """Return the names that a section leaves, behind the definitions in the page's first block, some of which are given."""
    names = {}
    run = lambda examples: [exec(example.source, names) for example in examples]
    definitions, *blocks = examples_in("The step")
    run(definitions)
    train = functools.partial(train_in, dtype, names["train"])
    names |= {"strategy": strategy, "batches": batches, "train": train, **given}
    for needed in (*NEEDS.get(title, ()), title):
        for block in blocks if needed == "The step" else examples_in(needed):
            run(block)
    return names


def train_in(dtype, train, step, make_state):
    """Train with a state whose numbers have a type, where the page has float32."""
    is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)
    cast = lambda leaf: leaf.astype(dtype) if is_float(leaf) else leaf
    return train(step, lambda: jax.tree.map(cast, make_state()))


pytestmark = pytest.mark.usefixtures("double_precision")

EXACT = [
    "The step",
    "Means over tokens",
    "Dropout",
    "BatchNorm",
    "Gradient accumulation",
    "Clipping",
    "Averages of weights",
    "Frozen parts",
]
LOW_PRECISION = ["bfloat16", "float16"]
# What they leave is tested on the page itself, or elsewhere.
OTHERS = {"With linen", "Evaluation", "Checkpoints", "From one GPU to a pod"}


def test_every_recipe_of_the_page_is_compared():
    assert {*SECTIONS} == {*EXACT, *LOW_PRECISION} | OTHERS


@functools.cache
def run_on_plain_jax(title):
    names = run_section(title, PlainJAX(), make_batches())
    return jax.device_get((names["state"], names["loss"]))


@functools.cache
def run_half_on_plain_jax(title):
    """Return the state that a section leaves on one device, with float32 where it does not cast, and the one it begins with."""
    names = run_section(title, PlainJAX(), make_batches(np.float32), np.float32, tx=optax.sgd(0.1))
    return jax.device_get((names["state"]["params"], names["make_params"]()))


def relative_error(actual, expected):
    errors = jax.tree.map(
        lambda a, e: float(np.abs(np.asarray(a) - e).max() / max(np.abs(e).max(), 1e-300)), actual, expected
    )
    return max(jax.tree.leaves(errors))


ALL = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.exhaustive) for name in STRATEGIES]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("title", EXACT)
@pytest.mark.parametrize("name", ALL)
def test_states_after_three_steps_are_those_of_one_device(name, title):
    names = run_section(title, STRATEGIES[name](), make_batches())
    expected = run_on_plain_jax(title)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(expected[0]["params"])} == {"float64"}
    assert relative_error((names["state"], names["loss"]), expected) < 1e-12


@pytest.mark.one_in(6)
@pytest.mark.parametrize("title", LOW_PRECISION)
@pytest.mark.parametrize("name", ALL)
def test_training_in_low_precision_goes_as_far_as_that_of_one_device(name, title):
    """What rounding makes of the order of sums is less than the type's epsilon of all that has changed.

    Adam would make whole steps of the signs of gradients near zero, which are rounding alone.
    """
    names = run_section(title, STRATEGIES[name](), make_batches(np.float32), np.float32, tx=optax.sgd(0.1))
    found, (expected, start) = names["state"]["params"], run_half_on_plain_jax(title)
    norm = lambda one, other: float(optax.tree.norm(jax.tree.map(lambda a, b: np.asarray(a) - b, one, other)))
    epsilon = float(jnp.finfo(title).eps)
    assert {np.asarray(leaf).dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float32)}
    assert norm(found, expected) < epsilon * norm(expected, start)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ALL)
def test_a_step_whose_gradients_are_not_finite_changes_nothing_but_the_scale(name):
    strategy, batches = STRATEGIES[name](), make_batches(np.float32)
    batches[1]["x"][5] = 1e5  # Infinite in float16, in one row of one replica.
    names = run_section("float16", strategy, batches[:1], np.float32)
    before = strategy.fetch(names["state"])
    after, _ = names["scaled_step"](names["state"], strategy.put(batches[1]))
    assert (float(after["scale"]), int(after["good"])) == (float(before["scale"]) / 2, 0)
    for part in ("params", "opt_state"):
        jax.tree.map(np.testing.assert_array_equal, after[part], before[part])
    last, loss = names["scaled_step"](after, strategy.put(batches[2]))
    assert np.isfinite(loss) and int(last["good"]) == 1
    assert relative_error(last["params"], before["params"]) > 1e-3
    scale = float(last["scale"])
    doubled, _ = names["scaled_step"]({**last, "good": jnp.int32(1999)}, strategy.put(batches[2]))
    assert float(doubled["scale"]) == 2 * scale


def test_accumulated_gradients_are_reduced_once():
    names = run_section("Gradient accumulation", td.Mirrored(), make_batches(np.float32), np.float32)
    batch = names["strategy"].put(make_batches(np.float32)[0])
    text = names["accumulating_step"].lower(names["state"], batch).compile().as_text()
    count = lambda text: len(re.findall(r" all-reduce(?:-start)?\(", text))
    assert " while(" in text
    # The loops are computations of their own: there is none in them.
    assert count(text[text.index("\nENTRY ") :].partition("\n}")[0]) == count(text) == 1


def test_a_mean_over_what_a_mask_leaves_is_refused_with_its_line():
    names = run_section("Means over tokens", td.Mirrored(), make_batches())
    batch = names["strategy"].put(make_batches()[0])
    loss_fn = lambda params, batch: names["compute_losses"](params, batch).mean(where=batch["y"] > 0)
    with pytest.raises(ValueError, match=r"test_recipes\.py:\d+.*td\.Mean\(sum, weight\)"):
        names["strategy"].value_and_grad(loss_fn, has_aux=False)(names["make_params"](), batch)
