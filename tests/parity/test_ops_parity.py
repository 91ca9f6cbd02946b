"""Operations give what TensorFlow gives: values, types, errors; and have its signatures."""

import fcntl
import inspect
import json
import operator
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))  # The same files serve TensorFlow's process, as scripts.

import evaluate_expressions  # noqa: E402
import expressions  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.slow("TensorFlow evaluates all expressions, and so do we, eagerly")]

# Relative and absolute. Sums of float32 in another order differ by more than 1e-6 now and then.
TOLERANCE = {"float64": 1e-12, "complex64": 2e-6, "float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}

# What TensorFlow has nothing of.
BEYOND_TENSORFLOW = {f"tf.distribute.experimental.{name}Strategy" for name in ("FSDP", "ModelParallel", "Pipeline")}

# What classes of ours take beyond TensorFlow's parameters, by name alone.
WAYS_OF_TRAINING = ["max_staleness", "backup_workers", "sync_every", "outer_optimizer", "report_every_s"]
BY_NAME_ALONE = {
    "tf.distribute.MirroredStrategy": ["communication_options"],
    "tf.distribute.ParameterServerStrategy": WAYS_OF_TRAINING,
    "tf.distribute.experimental.ParameterServerStrategy": WAYS_OF_TRAINING,
}

# Where TensorFlow has no default: of ours, one process can do without a cluster.
WITH_DEFAULT = {
    "tf.distribute.ParameterServerStrategy": {"cluster_resolver": "cluster_resolver=None"},
    "tf.distribute.experimental.ParameterServerStrategy": {"cluster_resolver": "cluster_resolver=None"},
}

# Classes that are made by other functions, never by a program.
NOT_FOR_PROGRAMS = {
    "tf.DType",
    "tf.RaggedTensor",
    "tf.Variable",  # TensorFlow's signature says (*args, **kwargs); its documentation says what ours does.
    "tf.dtypes.DType",
    "tf.test.TestCase",
    "tf.data.Dataset",
    "tf.data.Iterator",
    "tf.distribute.DistributedDataset",
    "tf.distribute.DistributedIterator",
    "tf.distribute.DistributedValues",
    "tf.distribute.ReplicaContext",
    "tf.distribute.Strategy",
    "tf.distribute.StrategyExtended",
    "tf.autograph.experimental.set_loop_options",  # Its defaults are objects that show their address.
    # The same class, whose TensorFlow name is another.
    "tf.distribute.cluster_resolver.KubernetesClusterResolver",
    "tf.distribute.experimental.CommunicationOptions",  # (*args, **kwargs) there.
    "tf.experimental.Optional",
    "tf.image.ResizeMethod",
    "tf.summary.SummaryWriter",
    "tf.tpu.experimental.DeviceAssignment",
    "tf.tpu.experimental.Topology",
    "tf.types.experimental.Callable",
    "tf.types.experimental.ConcreteFunction",
    "tf.types.experimental.GenericFunction",
    "tf.types.experimental.PolymorphicFunction",
    "tf.types.experimental.TensorLike",
}


@pytest.fixture(scope="module")
def names():
    return sorted(tf.__getattr__.dotted_names())


@pytest.fixture(scope="module")
def tensorflow(names, tmp_path_factory):
    """What TensorFlow says, in a process of its own, which the first worker starts."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "tensorflow.json").open("a+") as answers:
        fcntl.flock(answers, fcntl.LOCK_EX)
        if not os.fstat(answers.fileno()).st_size:
            ran = subprocess.run(
                [sys.executable, str(FOLDER / "evaluate_expressions.py")],
                input=json.dumps(names),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                cwd=tmp_path_factory.mktemp("tensorflow"),
            )
            assert ran.returncode == 0, ran.stderr[-3000:]
            answers.write(ran.stdout)
        answers.seek(0)
        return json.load(answers)


def difference(wanted, got):
    """Say how two described results differ, or return None."""
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        found = [difference(a, b) for a, b in zip(wanted, got, strict=True)]
    elif isinstance(wanted, dict) and "error" in wanted:
        same = isinstance(got, dict) and wanted["error"] == got.get("error")
        found = [None if same else f"{wanted} / {got}"]
    elif isinstance(wanted, dict) and "dtype" in wanted:
        found = [tensor_difference(wanted, got)]
    elif isinstance(wanted, dict) and isinstance(got, dict) and wanted.keys() == got.keys():
        found = [difference(wanted[key], got[key]) for key in wanted]
    else:
        found = [None if wanted == got else f"{wanted!r} / {got!r}"]
    return "; ".join(filter(None, found)) or None


def tensor_difference(wanted, got):
    if not isinstance(got, dict) or any(wanted[key] != got.get(key) for key in ("dtype", "shape")):
        return f"{wanted} / {got}"
    if wanted["dtype"] == "string":
        return None if wanted["value"] == got["value"] else f"{wanted} / {got}"
    tolerance = TOLERANCE.get(wanted["dtype"].split()[-1], 0)
    same = np.allclose(got["value"], wanted["value"], tolerance, tolerance, equal_nan=True)
    return None if same else f"{wanted} / {got}"


@pytest.mark.parametrize("group", expressions.GROUPS)
def test_expressions_give_what_tensorflow_gives(group, tensorflow):
    chosen = expressions.expressions(group)
    ours = json.loads(json.dumps(evaluate_expressions.evaluate(tf, expressions.SETUP, chosen)))
    wanted = tensorflow["results"]
    differing = {expression: difference(wanted[expression], ours[expression]) for expression in chosen}
    assert chosen and {expression: text for expression, text in differing.items() if text} == {}


def test_signatures_are_tensorflows(tensorflow, names):
    ours = evaluate_expressions.signatures(tf, names)
    wanted = {name: parameters for name, parameters in tensorflow["signatures"].items() if parameters != "no signature"}
    for name, added in BY_NAME_ALONE.items():
        assert [each.partition("=")[0] for each in ours[name][-len(added) :]] == added
        kinds = {
            inspect.signature(operator.attrgetter(name.removeprefix("tf."))(tf)).parameters[each].kind for each in added
        }
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
        ours[name] = ours[name][: -len(added)]
    for name, defaults in WITH_DEFAULT.items():
        assert defaults.keys() <= set(wanted[name])
        wanted[name] = [defaults.get(each, each) for each in wanted[name]]
    assert {name for name, parameters in wanted.items() if parameters is None} == BEYOND_TENSORFLOW
    differing = {name: (wanted[name], ours[name]) for name in wanted if wanted[name] not in (None, ours[name])}
    # Settings of ours can be given at once; errors take a text alone; JAX's functions of NumPy have all of its options;
    # TensorFlow 1's flags are absl's, whose defaults show their address, and its names for files take today's arguments.
    others = ("tf.errors.", "tf.experimental.numpy.", "tf.compat.v1.flags.", "tf.compat.v1.gfile.")
    # Classes that TensorFlow wraps show nothing of their own.
    more = lambda name: wanted[name] in ([], ["*args", "**kwargs"]) or name.startswith(others)
    differing = {name: both for name, both in differing.items() if not more(name)}
    assert {name: both for name, both in differing.items() if name not in NOT_FOR_PROGRAMS} == {}
