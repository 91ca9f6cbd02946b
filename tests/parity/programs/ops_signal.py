"""`tf.signal`: transforms in functions and under tapes, an inverse that brings the signal back, the way to MFCCs."""

import numpy as np
import tensorflow as tf
from _facts import error, show

rng = np.random.RandomState(0)
wave = tf.constant(rng.normal(size=(2, 64)).astype("f4"))
S = tf.signal


@tf.function
def features(signals):
    spectra = tf.abs(S.stft(signals, frame_length=16, frame_step=8, fft_length=32))
    mel = tf.matmul(spectra, S.linear_to_mel_weight_matrix(6, 17, 8000, 80.0, 3800.0))
    return S.mfccs_from_log_mel_spectrograms(tf.math.log(mel + 1e-3))[..., :4]


show("mfccs", features(wave))
for size in (5, 8):
    parts = tf.constant(rng.normal(size=(3, size)).astype("f4"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(parts)
        energy = tf.reduce_sum(tf.abs(S.rfft(parts)) ** 2)
        cosines = tf.reduce_sum(S.dct(parts, norm="ortho") ** 3)
        windowed = tf.reduce_sum(S.overlap_and_add(parts * S.hann_window(size), 2) ** 2)
        back = tf.reduce_sum(S.irfft(tf.complex(parts, 2 * parts)) ** 2)
    for name, value in {"energy": energy, "cosines": cosines, "windowed": windowed, "back": back}.items():
        show(f"gradient of {name}, {size}", tape.gradient(value, parts)[0])

stfts = S.stft(wave, 16, 4)
again = S.inverse_stft(stfts, 16, 4, window_fn=S.inverse_stft_window_fn(4))
show("largest error of the inverse", bool(np.abs(again[:, 12:-12] - wave[:, 12:-12]).max() < 1e-5))
twice = S.inverse_mdct(S.mdct(tf.pad(wave, [[0, 0], [8, 8]]), 16, norm="ortho"), norm="ortho")[:, 8:-8]
show("largest error of the inverse MDCT", bool(np.abs(twice - wave).max() < 1e-5))
show("shapes", [stfts.shape.as_list(), S.frame(wave, 16, 12, pad_end=True).shape.as_list()])
show("no window", S.stft(wave[0, :8], 4, 4, window_fn=None))
show("float64", S.rfft(tf.cast(wave[0, :6], tf.float64)))
show("cube", S.ifft3d(S.fft3d(tf.cast(tf.reshape(wave, [2, 4, 4, 4]), tf.complex64)))[0, 0, 0])
show("shifted", S.fftshift(tf.range(5)))
error("real numbers", lambda: S.fft(wave))
error("integers", lambda: S.rfft(tf.constant([1, 2])))
error("odd MDCT", lambda: S.mdct(wave, 10))
error("integer window", lambda: S.hann_window(4, dtype=tf.int32))
error("type 7", lambda: S.dct(wave, type=7))
