"""`tfdist-jax lint` tells from a program's text what happens when it runs."""

import importlib.util
import json
import re
import textwrap
from pathlib import Path

import pytest

from tfdist_jax.cli import main
from tfdist_jax.cli._name_status import find_status
from tfdist_jax.cli._tensorflow_uses import uses_of_program

ROOT = Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names(source):
    return {use.name for use in uses_of_program(textwrap.dedent(source), "a.py")}


def lint(capsys, *arguments):
    """Return the exit code, and what is said of lines."""
    code = main(["lint", *map(str, arguments)])
    *lines, end = capsys.readouterr().out.splitlines()
    return code, lines, end


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\ntf.queue.put(x)",
        "import tensorflow\ntensorflow.queue.put(x)",
        "import tensorflow.queue\ntensorflow.queue.put(x)",
        "import tensorflow.queue as s\ns.put(x)",
        "from tensorflow import queue\nqueue.put(x)",
        "from tensorflow import queue as s\nf = lambda x: s.put(x)",
        "from tensorflow.queue import put",
        "import tensorflow as tf\ns = tf.queue\ndef f(x):\n    return [s.put(y) for y in x]",
        "import tensorflow as tf\ns, (j, t) = tf.queue, (tf.queue.put, tf)\nj(x)",
        "import tensorflow as tf\nclass C:\n    @tf.queue.put\n    def f(self): pass",
        "def f():\n    import tensorflow as tf\n    return g(tf.queue.put(x))",
        "def f():\n    return tf.queue.put(x)\nimport tensorflow as tf",
        "import tensorflow as tf\nf(*x, y=z[tf.queue.put(x)])",
        "try:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\ntf.queue.put(x)",
    ],
)
def test_a_name_is_seen_however_it_is_imported(source):
    assert "tf.queue.put" in names(source)


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\ndef f(tf):\n    tf.queue.put(x)",
        "import tensorflow as tf\nf = lambda tf: tf.queue.put(x)",
        "import tensorflow as tf\nfor tf in y:\n    tf.queue.put(x)",
        "import tensorflow as tf\n[tf.queue.put(x) for tf in y]",
        "import tensorflow as tf\ntf = other\ntf.queue.put(x)",
        "import tensorflow as tf\ntry:\n    pass\nexcept ValueError as tf:\n    tf.queue.put(x)",
        "import tensorflow as tf\nmatch x:\n    case [tf, *_]:\n        tf.queue.put(x)",
        "try:\n    from tensorflow import strings\nexcept ImportError:\n    strings = None\nstrings.put(x)",
        "import tensorflow_addons as tf\ntf.queue.put(x)",
        "from .tensorflow import queue\nqueue.put(x)",
        "from mine import tf\ntf.queue.put(x)",
        "import tensorflow as other\ntf.queue.put(x)",
        "class C:\n    import tensorflow as tf\n    def f(self):\n        tf.queue.put(x)",
    ],
)
def test_what_is_something_else_is_not_seen(source):
    assert "tf.queue.put" not in names(source)


def test_lines_and_arguments_of_uses():
    uses = uses_of_program(
        "import tensorflow as tf\nd = (tf.data.Dataset.range(3)\n   .batch(2, drop_remainder=True))\n", "a.py"
    )
    assert [(use.line, use.name, use.keywords) for use in uses] == [
        (1, "tf", ()),
        (2, "tf.data.Dataset.range", ()),
        (3, "tf.data.Dataset.range().batch", ("drop_remainder",)),
    ]


@pytest.mark.parametrize(
    ("source", "is_handled"),
    [
        ("try:\n    tf.queue.put(x)\nexcept AttributeError:\n    pass", True),
        ("try:\n    tf.queue.put(x)\nexcept (ValueError, ImportError):\n    pass", True),
        ("try:\n    tf.queue.put(x)\nexcept:\n    pass", True),
        ("try:\n    tf.queue.put(x)\nexcept ValueError:\n    pass", False),
        ("try:\n    pass\nexcept AttributeError:\n    tf.queue.put(x)", False),
        ("if hasattr(tf, 'queue'):\n    tf.queue.put(x)", True),
        ("y = tf.queue.put(x) if tf.__version__ > '3' else x", True),
        ("if x:\n    tf.queue.put(x)", False),
        ("y = hasattr(tf, 'queue') and tf.queue.put(x)", True),
        ("y = tf.queue.put(x) and hasattr(tf, 'queue')", False),
        ("if 'queue' in dir(tf) and tf.queue.put(x):\n    pass", True),
        ("def f():\n    if not hasattr(tf, 'queue'):\n        return x\n    return tf.queue.put(x)", True),
        ("for y in x:\n    if not hasattr(tf, 'queue'):\n        continue\n    tf.queue.put(y)", True),
        ("for y in x:\n    if not hasattr(tf, 'queue'):\n        continue\ntf.queue.put(y)", False),
        ("if hasattr(tf, 'queue'):\n    def f():\n        return tf.queue.put(x)", True),
        ("with contextlib.suppress(AttributeError):\n    tf.queue.put(x)", True),
        ("with contextlib.suppress(KeyError):\n    tf.queue.put(x)", False),
    ],
)
def test_who_goes_on_without_a_name_has_no_problem(source, is_handled, tmp_path, capsys):
    (tmp_path / "a.py").write_text(f"import tensorflow as tf\n{source}\n")
    code, lines, _ = lint(capsys, tmp_path)
    assert code == (not is_handled)
    assert len(lines) == 1 and ("goes on without" in lines[0]) == is_handled


def test_what_is_said(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text(
        textwrap.dedent("""
        import tensorflow as tf
        x = tf.queue.put(["a"])
        tf.py_function(f, [x], tf.float32), tf.py_function(g, [x], tf.float32)
        data = tf.data.Dataset.range(3).batch(2).fingerprint()
        tf.reduce_sum(x, axis=0, keep_dims=True)
        tf.data.Dataset.range(3).batched(2), data.anything, tf.keras.layers.Dense(2).nothing, tf.keras.layers.Nothing
        """)
    )
    code, lines, end = lint(capsys, program)
    assert code == 1 and all(line.startswith(f"{program}:") for line in lines)
    said = [re.sub(r"\w*$", "", line.removeprefix(f"{program}:")) for line in lines]
    assert [line.split("`:")[0] for line in said] == [
        "3: missing: `tf.queue.put",
        "4: emulated: `tf.py_function",
        "5: missing: `tf.data.Dataset.range().batch().fingerprint",
        "6: missing: `tf.reduce_sum",
        "7: missing: `tf.data.Dataset.range().batched",
        "7: missing: `tf.keras.layers.Nothing",
    ]
    assert "queues fed" in said[0] and "Compare the elements" in said[2] and "no argument 'keep_dims'" in said[3]
    assert re.match(
        r"1 file; uses of names: \d+ native, 1 emulated, 0 older form, 5 missing, 2 unknown. 5 to be mended.", end
    )


def test_json_has_all_uses(tmp_path, capsys):
    (tmp_path / "a.py").write_text("import tensorflow as tf\ntf.ones(2)\ntf.queue.put(x)\n")
    assert main(["lint", "--json", str(tmp_path)]) == 1
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["line"], each["kind"], each["name"]) for each in said] == [
        (1, "native", "tf"),
        (2, "native", "tf.ones"),
        (3, "missing", "tf.queue.put"),
    ]


def test_folders_files_and_what_cannot_be_read(tmp_path, capsys):
    for folder in ("package", ".hidden", "venv/lib/site-packages/other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("import tensorflow as tf\ntf.queue\n")
    code, lines, end = lint(capsys, tmp_path)
    assert code == 1 and len(lines) == 1 and "package" in lines[0] and end.startswith("1 file;")
    (tmp_path / "package" / "a.py").write_text("print 'Python 2'\n")
    code, lines, end = lint(capsys, tmp_path)
    assert code == 1 and ":1: unreadable: " in lines[0] and "1 could not be read" in end
    (tmp_path / "package" / "a.py").write_bytes(b"x = '\xff'\n")
    assert lint(capsys, tmp_path)[0] == 1
    (tmp_path / "package" / "a.py").write_text("")
    assert lint(capsys, tmp_path)[0] == 0
    assert main(["lint", str(tmp_path / "absent.py")]) == 2
    assert "absent.py" in capsys.readouterr().err


def test_every_name_of_tensorflow_has_the_status_that_it_has_when_it_is_asked_for():
    wanted = load(ROOT / "docs/make_api.py").status()
    found = {name: find_status(name).kind.replace("missing", "unsupported") for name in wanted}
    always_errors = ("tf.load_library", "tf.load_op_library", "tf.feature_column.shared_embeddings")
    assert {found.pop(name) for name in always_errors} == {"unsupported"}
    assert found == {name: kind for name, kind in wanted.items() if name in found} and len(found) > 1000


def test_programs_that_run_have_no_problems(capsys):
    code, lines, _ = lint(capsys, ROOT / "tests/parity/programs", ROOT / "examples")
    assert code == 0, [line for line in lines if ": missing: " in line]


def test_what_a_property_of_a_dataset_has_is_not_asked_of_the_dataset(capsys, tmp_path):
    program = tmp_path / "program.py"
    dataset = "tf.data.Dataset.range(3)"
    program.write_text(
        f"import tensorflow as tf\nprint({dataset}.element_spec.shape)\nprint({dataset}.nonsense.shape)\n"
    )
    code, lines, _ = lint(capsys, program)
    assert code == 1
    (missing,) = [line for line in lines if ": missing: " in line]
    assert "nonsense" in missing


def test_of_the_seed_programs_those_have_problems_that_do_not_run(capsys):
    seeds = load(ROOT / "tests/test_seed_programs.py")
    if not seeds.FOLDER.is_dir():
        pytest.skip(f"The programs are not in {seeds.FOLDER}: set TFDIST_SEED_PROGRAMS.")
    codes = {name: lint(capsys, seeds.FOLDER / f"{name}.py")[0] for name in (*seeds.RUNS, *seeds.LATER)}
    assert {name for name, code in codes.items() if code} == set(seeds.LATER)


@pytest.mark.parametrize(
    ("line", "today"),
    [
        ("from tensorflow.python.client import device_lib", "the public names under `tf.`"),
        ("from tensorflow.python.keras.layers import Dense", "the public names under `tf.`"),
        ("from keras.layers.convolutional import Conv2D", "the public names under `keras.`"),
        ("from keras.utils import np_utils", "the public names under `keras.`"),
        ("import tensorflow.compat.v2 as tf2", "`import tensorflow as tf`"),
        ("keras.layers.experimental.preprocessing.Rescaling(2.0)", "`keras.layers`"),
        ("keras.optimizers.Adam(lr=0.1)", "`learning_rate=` for `lr=`"),
        ("layer = keras.layers.LSTM(2, batch_input_shape=(1, 2, 3))", "`keras.Input(batch_shape=...)`"),
        ("keras.Sequential().fit(x, workers=2)", "`workers=`"),
        ("keras.Sequential().fit_generator(x)", "`model.fit`"),
        ("model.fit(x, use_multiprocessing=True)", "`use_multiprocessing=`"),
        ("model.predict_classes(x)", "`model.predict(x).argmax(-1)`"),
        ("self.add_weight('kernel', (2,))", "for a text as first argument"),
        ("class C(keras.Model):\n    def call(self, x): return self.compiled_loss(x)", "`self.compute_loss("),
        ("class C(keras.optimizers.Optimizer):\n    def _resource_apply_dense(self, g, v): pass", "`update_step`"),
    ],
)
def test_older_forms_are_told_and_stand_in_nobodys_way(line, today, tmp_path, capsys):
    (tmp_path / "a.py").write_text(f"import keras\nimport tensorflow as tf\n{line}\n")
    code, lines, end = lint(capsys, tmp_path)
    assert code == 0 and "1 older form" in end
    assert len(lines) == 1 and ": older form: " in lines[0] and today in lines[0], lines


@pytest.mark.parametrize(
    "line",
    [
        "import keras\nkeras.Sequential().fit(x, epochs=2)",
        "import keras\nkeras.optimizers.Adam(learning_rate=0.1)",
        "import keras\nself.add_weight((2,), name='kernel')",
        "from sklearn import x\nx.fit_generator(y)",
    ],
)
def test_forms_of_today_are_not_older(line, tmp_path, capsys):
    (tmp_path / "a.py").write_text(line + "\n")
    assert "0 older form" in lint(capsys, tmp_path)[2]


def test_what_private_code_takes_in_another_way_is_missing(tmp_path, capsys):
    (tmp_path / "a.py").write_text(
        "from tensorflow.python.ops.nn_ops import dropout\nimport tensorflow.python.nothing\n"
    )
    code, lines, _ = lint(capsys, tmp_path)
    assert code == 1 and [": missing: " in line for line in lines] == [True, True]
