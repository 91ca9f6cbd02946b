"""Input of `fit`, `evaluate` and `predict` made with other libraries: grain, PyTorch, SciPy."""

import grain
import keras
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse

import tfdist_jax.compat.tensorflow as tf

# Keras warns that it does not shuffle them.
pytestmark = pytest.mark.filterwarnings("ignore:`shuffle=True` was passed, but will be ignored")


class Rows:
    """Rows of features and labels, by number."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data.y)

    def __getitem__(self, i):
        return self.data.x[i], self.data.y[i]


def grain_loader(rows):
    sampler = grain.samplers.SequentialSampler(len(rows), shard_options=grain.sharding.NoSharding())
    return grain.DataLoader(data_source=rows, sampler=sampler, operations=[grain.transforms.Batch(16)])


def torch_loader(rows):
    data = pytest.importorskip("torch.utils.data")
    return data.DataLoader(rows, batch_size=16)


LOADERS = {
    "grain map": lambda rows: grain.MapDataset.source(rows).batch(16),
    "grain iter": lambda rows: grain.MapDataset.source(rows).to_iter_dataset().batch(16),
    "grain loader": grain_loader,
    "torch": torch_loader,
}


# Keras does not know how many batches there are before the first epoch has ended.
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("kind", LOADERS)
def test_loaders_train_as_their_arrays_do(kind, strategy, make_model, fit, data, assert_same_training):
    model, other = make_model(strategy), make_model(strategy)
    loader = LOADERS[kind](Rows(data.rows(42)))
    expected = fit(other, data.rows(42), validation_data=(data.x[:42], data.y[:42]), validation_batch_size=16)
    history = model.fit(loader, epochs=2, verbose=0, validation_data=loader).history
    assert_same_training(model, history, other, expected, atol=1e-6)
    evaluated = other.evaluate(data.x[:42], data.y[:42], batch_size=16, verbose=0)
    np.testing.assert_allclose(model.evaluate(loader, verbose=0), evaluated, atol=1e-6)
    np.testing.assert_allclose(model.predict(loader, verbose=0), other.predict(data.x[:42], verbose=0), atol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, sparse.BCOO.fromdense])
def test_sparse_inputs_count_row_by_row(kind, eager, strategy, make_model, fit, data, assert_same_training):
    x, y = np.where(data.x > 0.7, data.x, 0)[:42], data.y[:42]
    model, other = make_model(strategy, run_eagerly=eager), make_model(strategy)
    batches = [(kind(x[i : i + 16]), y[i : i + 16]) for i in (0, 16, 32)]
    history = {name: [] for name in ("accuracy", "loss")}
    for _ in range(2):
        logs = model.fit((batch for batch in batches), shuffle=False, verbose=0, steps_per_epoch=3).history
        for name, values in logs.items():
            history[name] += values
    expected = other.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history
    assert_same_training(model, history, other, expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(kind(x[:10]), verbose=0), other.predict(x[:10], verbose=0), atol=1e-6)


@pytest.mark.peers
def test_a_training_does_not_load_the_real_tensorflow(run_prepared, tmp_path):
    program = f"""
        import importlib, sys
        import numpy as np, tensorflow as tf
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse")
        backup = tf.keras.callbacks.BackupAndRestore({str(tmp_path / "backup")!r})
        model.fit(np.ones((8, 3)), np.ones((8, 1)), verbose=0, callbacks=[backup])
        model.save("model.keras")
        tf.keras.models.load_model("model.keras")
        tf.keras.layers.Hashing(3)(np.array([1, 2]))
        tf.keras.layers.StringLookup(vocabulary=["a"])(tf.constant(["a"]))
        assert "tensorflow" not in sys.modules
        real = importlib.import_module("tensorflow")
        draws = []
        for _ in range(2):  # From now on it is seeded, too.
            tf.keras.utils.set_random_seed(1)
            draws.append(float(real.random.uniform([])))
        assert draws[0] == draws[1]
    """
    ran = run_prepared(program)
    assert ran.returncode == 0, ran.stderr


def test_folders_of_texts_are_datasets_of_this_project(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        (tmp_path / label / "text.txt").write_text(f"hello {label}")
    dataset = keras.utils.text_dataset_from_directory(tmp_path, shuffle=False, verbose=False)
    ((texts, labels),) = dataset
    assert isinstance(dataset, tf.data.Dataset)
    assert (texts.numpy().tolist(), labels.numpy().tolist()) == ([b"hello a", b"hello b"], [0, 1])
