import collections
import dataclasses
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState
from jax.sharding import PartitionSpec as P

import tfdist_jax as td
from tfdist_jax._sharding._layout import leaf_paths, restrict, split_largest, tree_layouts


def seen_of(tree):
    """Return what a rule sees of each leaf of a tree."""
    seen = {}
    tree_layouts(lambda leaf: seen.update({leaf.path: leaf}) or td.Layout(), tree, td.make_mesh({"data": 8}))
    return seen


@pytest.mark.parametrize(
    ("shape", "spec", "split"),
    [
        ((64, 16), P(), P("data")),
        ((16, 64), P(), P(None, "data")),
        ((3, 5), P(), None),
        ((), P(), None),
        ((7, 8), P(), P(None, "data")),
        ((0, 8), P(), P(None, "data")),
        ((64, 16), P("tensor"), P("tensor", "data")),
        ((64, 16), P(None, "tensor"), P("data", "tensor")),
        ((64, 15), P(("expert", "tensor")), None),
        ((15, 64, 16), P(None, None, "tensor"), P(None, "data", "tensor")),
    ],
)
def test_the_largest_divisible_dimension_that_is_whole_is_split(shape, spec, split):
    assert split_largest(spec, shape, "data", 8) == split


@pytest.mark.parametrize(
    ("spec", "part"),
    [(P(), P()), (P(None, "data"), P(None, "data")), (P(("model", "data")), P("data")), (P("m"), P(None))],
)
def test_a_layout_is_cut_down_to_some_axes(spec, part):
    assert restrict(spec, {"data"}) == part


def test_rules_see_the_path_of_each_leaf():
    seen = seen_of({"a": [jnp.ones(3)], "b": jax.ShapeDtypeStruct((2,), "int32"), "value": jnp.ones(())})
    assert {path: (leaf.shape, str(leaf.dtype)) for path, leaf in seen.items()} == {
        "a/0": ((3,), "float32"),
        "b": ((2,), "int32"),
        "value": ((), "float32"),
    }


def make_linen_params():
    kernel_init = linen.with_partitioning(linen.initializers.lecun_normal(), ("embed", "mlp"))
    return linen.Dense(8, kernel_init=kernel_init).init(jax.random.key(0), jnp.ones((1, 4)))["params"]


class Net(nnx.Module):
    def __init__(self):
        with nnx.use_eager_sharding(False):
            kernel_init = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("embed", "mlp"))
            self.layers = nnx.List([nnx.Linear(4, 8, rngs=nnx.Rngs(0), kernel_init=kernel_init)])


OPTIMIZER = optax.chain(optax.clip(1.0), optax.adam(1e-3))
STATES = {
    "dict and tuple": lambda: (params := {"kernel": jnp.ones((4, 8))}, OPTIMIZER.init(params)),
    "linen": lambda: (params := make_linen_params(), OPTIMIZER.init(params)),
    "TrainState": lambda: TrainState.create(apply_fn=None, params=make_linen_params(), tx=OPTIMIZER),
    "nnx.State": lambda: (params := nnx.state(Net(), nnx.Param), OPTIMIZER.init(params)),
    "nnx.Module": lambda: (net := Net(), nnx.Optimizer(net, OPTIMIZER, wrt=nnx.Param)),
    "nnx.Optimizer's state": lambda: (net := Net(), nnx.state(nnx.Optimizer(net, OPTIMIZER, wrt=nnx.Param))),
}


@pytest.mark.parametrize("name", STATES)
def test_rules_see_names_and_whose_arrays_are_the_optimizers(name):
    kernels = {path: leaf for path, leaf in seen_of(STATES[name]()).items() if path.endswith("kernel")}
    found = collections.Counter((leaf.axis_names, leaf.is_optimizer_state) for leaf in kernels.values())
    names = None if name == "dict and tuple" else ("embed", "mlp")
    assert found == {(names, False): 1, (names, True): 2}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (P("model"), r"blocks/w of shape \(6, 8\).*no axis 'model'.*'data': 2"),
        (P(None, None, "data"), r"only 2 dimensions"),
        (P("tensor"), r"dimension 0 does not divide into 4 parts"),
        (P("data", "data"), r"names an axis twice"),
    ],
)
def test_layouts_that_cannot_be_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        td.TensorParallel(4, {"w": spec}).init(lambda: {"blocks": {"w": jnp.ones((6, 8))}})


def specs_of(strategy, make_state):
    shardings = jax.tree.leaves(strategy.shardings(jax.eval_shape(make_state)))
    return {path: sharding.spec for path, sharding in zip(seen_of(make_state()), shardings, strict=True)}


def test_rules_hold_for_the_ends_of_paths_and_the_first_wins():
    make_params = lambda: {"a": {"up": jnp.ones((8, 8))}, "b": {"up": jnp.ones((8, 8))}, "pup": jnp.ones(8)}
    rules = {"a/up": P("tensor"), "[a-z]+/up": P(None, "tensor")}
    specs = specs_of(td.TensorParallel(4, rules), lambda: (make_params(), OPTIMIZER.init(make_params())))
    expected = {"a/up": P("tensor"), "b/up": P(None, "tensor"), "pup": P()}
    places = "0", "1/1/0/mu", "1/1/0/nu"
    assert specs == {f"{place}/{end}": spec for place in places for end, spec in expected.items()} | {
        "1/1/0/count": P()
    }


def test_rules_that_match_nothing_are_told_of():
    with pytest.warns(UserWarning, match=r"rules \['kernl'\] match the end of no path.*'layer/kernel'"):
        td.TensorParallel(4, {"kernl": P("tensor"), "kernel": P("tensor")}).init(
            lambda: {"layer": {"kernel": jnp.ones(8)}}
        )


@final
@dataclasses.dataclass(frozen=True)
class FromTheFront(td.Strategy):
    prefix: str

    @property
    def mesh(self):
        return td.make_mesh({"data": 8})

    def state_layout(self, leaf):
        return td.Layout(P("data") if leaf.path.startswith(self.prefix) else P())


def test_a_parameter_that_lies_elsewhere_in_the_state_is_told_of():
    def compute(strategy):
        params = strategy.init(lambda: ({"w": jnp.ones((8, 8))}, {"v": jnp.ones((8, 8))}))[0]
        loss_fn = lambda params, x: (x @ params["w"]).mean()
        return strategy.value_and_grad(loss_fn, has_aux=False)(params, strategy.put(np.ones((8, 8))))

    with pytest.warns(UserWarning, match=r"w is laid out P.*\(\) where.* but P.*\('data',?\) in the state, at 0/w"):
        compute(FromTheFront("0/"))
    compute(FromTheFront(""))
    compute(FromTheFront("1/"))


@pytest.mark.parametrize("gradient", [P(None, "data"), P(None), P("tensor")])
def test_gradients_that_are_split_otherwise_than_their_parameter_are_refused(gradient):
    with pytest.raises(ValueError, match=r"gradient of w is to be laid out.*does not split it as"):
        tree_layouts(
            lambda _: td.Layout(P("data"), gradient), {"w": jnp.ones((8, 8))}, td.make_mesh({"data": 4, "tensor": 2})
        )


def test_axes_that_split_nothing_are_told_of():
    with pytest.warns(UserWarning, match=r"Over the axes \['model'\] of the mesh.*all compute the same"):
        td.Sharded({"data": 2, "model": 4}).init(lambda: jnp.ones((8, 8)))


def test_axis_names_are_rules():
    strategy = td.Sharded(
        {"data": 2, "fsdp": 2, "tensor": 2}, axis_rules={"embed": "fsdp", "mlp": ["tensor"]}, min_size=1
    )
    for name in ("linen", "nnx.State", "nnx.Module"):
        specs = specs_of(strategy, STATES[name]).items()
        assert {spec for path, spec in specs if path.endswith("kernel")} == {P("fsdp", "tensor")}


def test_an_optimizers_statistics_of_another_shape_stay_whole():
    adafactor = optax.adafactor(1e-3, min_dim_size_to_factor=8)
    make_state = lambda: (params := {"kernel": jnp.ones((16, 16, 32))}, adafactor.init(params))
    specs = specs_of(td.TensorParallel(4, {"kernel": P(None, None, "tensor")}), make_state)
    assert specs.pop("0/kernel") == P(None, None, "tensor")
    assert set(specs.values()) == {P()}


def test_wrong_rules_are_refused():
    with pytest.raises(TypeError, match=r"'kernel' needs a jax\.sharding\.PartitionSpec.*got 'tensor'"):
        td.TensorParallel(4, {"kernel": "tensor"})
    with pytest.raises(ValueError, match=r"'\(' is no regular expression"):
        td.Sharded({"data": 8}, {"(": P("data")})


def test_each_leaf_has_a_path_also_where_a_box_holds_several():
    tree = {"box": linen.Partitioned((jnp.ones(2), jnp.ones(3)), ("a",)), "plain": [jnp.ones(1)]}
    assert leaf_paths(tree) == ["box", "box", "plain/0"]
    assert len(jax.tree.leaves(tree)) == 3
    # Evaluation, which asks for them under a pipeline, takes such a state under any strategy.
    for strategy in td.Mirrored(), td.Pipeline(2, 2):
        found = strategy.evaluate(lambda state, x: state["plain"][0].sum() * x.sum())(tree, strategy.put(np.ones(8)))
        assert float(found) == 8
