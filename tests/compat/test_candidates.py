"""Candidate samplers: the distribution of what they draw; losses that use them train."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


@pytest.mark.one_in(2)
@pytest.mark.parametrize("unique", [True, False])
def test_counts_are_those_of_many_samples(unique):
    classes, samples, rounds, at_once = 12, 4, 3000, 50
    tf.random.set_seed(0)

    @tf.function
    def draw():
        sampler = tf.random.log_uniform_candidate_sampler
        return [sampler([[0], [5]], 1, samples, unique, classes).sampled_candidates for _ in range(at_once)]

    drawn = np.concatenate([part.numpy() for _ in range(rounds // at_once) for part in draw()])
    _, true, _ = tf.random.log_uniform_candidate_sampler([[c] for c in range(classes)], 1, samples, unique, classes)
    counts = np.bincount(drawn, minlength=classes) / rounds
    # Four standard deviations of a count; the formula for samples without repetitions is an estimate itself.
    np.testing.assert_allclose(counts, true[:, 0], atol=4 * np.sqrt(0.9 / rounds) + (0.03 if unique else 0))
    assert drawn.min() >= 0 and drawn.max() < classes


def test_unique_candidates_differ():
    drawn = tf.random.uniform_candidate_sampler([[0]], 1, 50, True, 60)[0].numpy()
    assert len(set(drawn.tolist())) == 50


def test_sampled_softmax_approaches_the_whole_softmax():
    rng = np.random.default_rng(0)
    weights, biases = tf.constant(rng.normal(size=(40, 3)), tf.float32), tf.zeros([40])
    inputs, labels = tf.constant(rng.normal(size=(5, 3)), tf.float32), tf.constant([[1], [7], [2], [30], [0]])
    whole = tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, 0], inputs @ tf.transpose(weights))
    every = tf.random.all_candidate_sampler(labels, 1, 40, True)
    sampled = tf.nn.sampled_softmax_loss(weights, biases, labels, inputs, 40, 40, sampled_values=every)
    np.testing.assert_allclose(sampled, whole, rtol=1e-5)


def test_sampled_loss_trains_an_embedding_in_a_function():
    rng = np.random.default_rng(0)
    table, output = (tf.Variable(rng.normal(size=(20, 4)) * 0.1, dtype=tf.float32) for _ in range(2))
    biases = tf.Variable(tf.zeros([20]))
    words = tf.constant(rng.integers(0, 20, 64))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            given = tf.nn.embedding_lookup(table, words)
            wanted = ((words + 1) % 20)[:, None]
            loss = tf.reduce_mean(tf.nn.nce_loss(output, biases, wanted, given, 8, 20))
        variables = [table, output, biases]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(2.0 * tf.convert_to_tensor(gradient))
        return loss

    losses = [float(step()) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_wrong_arguments_say_so(tmp_path):
    with pytest.raises(tf.errors.InvalidArgumentError, match="either vocab_file or unigrams"):
        tf.nn.fixed_unigram_candidate_sampler([[1]], 1, 2, False, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="range_max is 4"):
        tf.nn.fixed_unigram_candidate_sampler([[1]], 1, 2, False, 4, unigrams=[1.0])
    with pytest.raises(NotImplementedError, match="num_shards=1"):
        tf.nn.fixed_unigram_candidate_sampler([[1]], 1, 2, False, 1, unigrams=[1.0], num_shards=2)
    vocabulary = tmp_path / "words"
    vocabulary.write_text("the,3\ncat,1\n")
    counts = tf.nn.fixed_unigram_candidate_sampler([[0, 1]], 2, 4, False, 2, vocab_file=str(vocabulary))[1]
    np.testing.assert_allclose(counts, [[3.0, 1.0]])
