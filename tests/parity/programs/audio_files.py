"""WAV files: written, read, in datasets and functions; what is no such file."""

import numpy as np
import tensorflow as tf
from _facts import error, show

sound = np.array([[0.0, 0.5], [-1.0, 1.0], [0.25, -0.3], [2.0, -2.0], [1e-5, 1.6e-5], [0.1, -0.1]], np.float32)
file = tf.audio.encode_wav(sound, 8000)
show("file", file)
show("one channel", tf.audio.encode_wav(sound[:, :1], tf.constant(16000)))
ties = (np.arange(-6, 7, dtype=np.float32)[:, None] + 0.5) / 32768
show("rounded", tf.audio.encode_wav(ties, 1))
show("read", list(tf.audio.decode_wav(file)))
for channels, samples in ((1, -1), (3, -1), (-1, 3), (-1, 8), (2, 2), (1, 7), (0, 0)):
    show(f"{channels} channels, {samples} samples", tf.audio.decode_wav(file, channels, samples).audio)
tf.io.write_file("sound.wav", file)


def spectrum(path):
    audio, rate = tf.audio.decode_wav(tf.io.read_file(path), desired_channels=1)
    wave = tf.squeeze(audio, axis=-1)
    return tf.abs(tf.signal.stft(wave, frame_length=4, frame_step=2)), rate


dataset = tf.data.Dataset.from_tensor_slices(["sound.wav"] * 3).map(spectrum, tf.data.AUTOTUNE).batch(2)
for spectra, rates in dataset:
    show("spectra", [spectra.shape.as_list(), tf.round(spectra * 1000), rates])
loud = tf.function(lambda contents: tf.reduce_max(tf.abs(tf.audio.decode_wav(contents).audio)))
show("function", [loud(file), loud(tf.audio.encode_wav(sound / 4, 8000))])
no_samples = tf.audio.encode_wav(np.zeros([0, 1], np.float32), 8000)
show("no samples", [no_samples, tf.audio.decode_wav(no_samples).audio])
raw = file.numpy()
error("text", lambda: tf.audio.decode_wav("text"))
error("nothing", lambda: tf.audio.decode_wav(""))
error("head only", lambda: tf.audio.decode_wav(raw[:20]))
error("cut off", lambda: tf.audio.decode_wav(raw[:-3]))
error("8 bits", lambda: tf.audio.decode_wav(raw[:34] + b"\x08" + raw[35:]))
error("several", lambda: tf.audio.decode_wav([file, file]))
error("a vector", lambda: tf.audio.encode_wav(sound[0], 8000))
error("no channels", lambda: tf.audio.encode_wav(sound[:, :0], 8000))
error("rate", lambda: tf.audio.encode_wav(sound, 0))
