"""The tutorials on texts: standardized, looked up, counted and generated; each cell's shapes, types and strings."""

import re
import string

import numpy as np
import tensorflow as tf
from _facts import show

layers = tf.keras.layers
tf.keras.utils.set_random_seed(1)

REVIEWS = [
    "Great movie!<br />Loved it.",
    "Terrible, boring plot...",
    "A great plot; a GREAT cast",
    "boring and bad",
] * 4
LABELS = [1.0, 0.0, 1.0, 0.0] * 4


def standardize(texts):
    plain = tf.strings.regex_replace(tf.strings.lower(texts), "<br />", " ")
    return tf.strings.regex_replace(plain, f"[{re.escape(string.punctuation)}]", "")


raw = tf.data.Dataset.from_tensor_slices((REVIEWS, LABELS)).batch(8)
vectorize = layers.TextVectorization(standardize=standardize, max_tokens=40, output_sequence_length=6)
vectorize.adapt(raw.map(lambda text, label: text))
show("vocabulary", vectorize.get_vocabulary())
dataset = raw.map(lambda text, label: (vectorize(tf.expand_dims(text, -1)), label)).cache().prefetch(2)
show("vectorized", next(iter(dataset))[0])
embedded = [layers.Embedding(40, 8), layers.GlobalAveragePooling1D(), layers.Dense(1, activation="sigmoid")]
model = tf.keras.Sequential(embedded)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(dataset, epochs=4, verbose=0).history
show("training", [sorted(history), history["loss"][-1] < history["loss"][0]])
whole = tf.keras.Sequential([vectorize, model])
whole.compile("adam", "binary_crossentropy", metrics=["accuracy"])
show("evaluated", sorted(whole.evaluate(raw, return_dict=True, verbose=0)))
one = whole.predict(tf.constant(["great"]), verbose=0)
several = whole.predict(tf.constant(["great", "bad movie", "boring"]), verbose=0)
show("predicted", [one.shape, several.shape, bool(np.allclose(one[0], several[0], atol=1e-6))])

rnn = tf.keras.Sequential(
    [vectorize, layers.Embedding(40, 4, mask_zero=True), layers.Bidirectional(layers.LSTM(4)), layers.Dense(1)]
)
alone = rnn.predict(tf.constant(["great plot"]), verbose=0)
padded = rnn.predict(tf.constant(["great plot", "a great plot and a bad cast"]), verbose=0)
show("masks", bool(np.allclose(alone[0], padded[0], atol=1e-5)))

characters = tf.strings.unicode_split(["abcd", "xyz"], input_encoding="UTF-8")
ids_of = layers.StringLookup(vocabulary=sorted("abcdxyz \n"), mask_token=None)
characters_of = layers.StringLookup(vocabulary=ids_of.get_vocabulary(), invert=True, mask_token=None)
ids = ids_of(characters)
print("ids", ids)
print("characters", characters_of(ids))
print("joined", tf.strings.reduce_join(characters_of(ids), axis=-1).numpy())
text = "abc cab\nxyz zyx" * 6
sequences = tf.data.Dataset.from_tensor_slices(ids_of(tf.strings.unicode_split(text, "UTF-8"))).batch(
    9, drop_remainder=True
)
pairs = sequences.map(lambda sequence: (sequence[:-1], sequence[1:]))
for taken, wanted in pairs.take(2):
    print(
        "pair",
        tf.strings.reduce_join(characters_of(taken)).numpy(),
        tf.strings.reduce_join(characters_of(wanted)).numpy(),
    )


class Characters(tf.keras.Model):
    """Predicts each next character, and hands on its state."""

    def __init__(self, size):
        super().__init__()
        self.embedding = layers.Embedding(size, 8)
        self.gru = layers.GRU(16, return_sequences=True, return_state=True)
        self.dense = layers.Dense(size)

    def call(self, inputs, states=None, return_state=False, training=False):
        x = self.embedding(inputs)
        if states is None:
            states = self.gru.get_initial_state(batch_size=tf.shape(x)[0])
        x, states = self.gru(x, initial_state=states, training=training)
        x = self.dense(x)
        return (x, states) if return_state else x


size = len(ids_of.get_vocabulary())
generator = Characters(size)
generator.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = generator.fit(pairs.batch(2, drop_remainder=True), epochs=3, verbose=0).history
show("characters are learnt", history["loss"][-1] < history["loss"][0])


class OneStep(tf.keras.Model):
    """Draws one character a call; never the unknown one."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        skipped = ids_of(["[UNK]"])[:, None]
        mask = tf.SparseTensor(values=[-float("inf")] * len(skipped), indices=skipped, dense_shape=[size])
        self.mask = tf.sparse.to_dense(mask)

    @tf.function
    def generate_one_step(self, inputs, states=None):
        ids = ids_of(tf.strings.unicode_split(inputs, "UTF-8")).to_tensor()
        logits, states = self.model(inputs=ids, states=states, return_state=True)
        drawn = tf.random.categorical(logits[:, -1, :] + self.mask, num_samples=1)
        return characters_of(tf.squeeze(drawn, axis=-1)), states


one_step = OneStep(generator)
states, next_character = None, tf.constant(["abc", "x"])
result = [next_character]
for _ in range(5):
    next_character, states = one_step.generate_one_step(next_character, states=states)
    result.append(next_character)
result = tf.strings.join(result)
show("generated", [len(text.decode()) for text in result.numpy()])
print("shape", result.shape, result.dtype, f"{next_character}" == str(next_character.numpy()))

sentence = "the wide road shimmered in the hot sun".split()
numbers = {word: i for i, word in enumerate(dict.fromkeys(sentence), 1)}
grams, _ = tf.keras.preprocessing.sequence.skipgrams(
    [numbers[word] for word in sentence], vocabulary_size=len(numbers) + 1, window_size=2, negative_samples=0
)
show("skip grams", len(grams))
show("table", tf.keras.preprocessing.sequence.make_sampling_table(size=5).astype("float32"))
classes = tf.reshape(tf.constant(1, dtype="int64"), (1, 1))
drawn, _, _ = tf.random.log_uniform_candidate_sampler(
    true_classes=classes, num_true=1, num_sampled=4, unique=True, range_max=8, seed=42
)
show("candidates", [drawn.shape.as_list(), drawn.dtype.name, len(set(drawn.numpy().tolist()))])


@tf.function
def greet(text):
    if text == "hello":
        return tf.strings.upper(text)
    return tf.strings.join([text, "?"])


show("branches", [greet(tf.constant("hello")).numpy(), greet(tf.constant("you")).numpy()])
