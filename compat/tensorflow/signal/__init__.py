"""`tf.signal`: Fourier and cosine transforms, windows and frames.

See https://www.tensorflow.org/api_docs/python/tf/signal.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "signal._fft": (
            "fft fft2d fft3d fftnd fftshift ifft ifft2d ifft3d ifftnd ifftshift irfft irfft2d irfft3d irfftnd rfft "
            "rfft2d rfft3d rfftnd"
        ),
        "signal._windows": "hamming_window hann_window kaiser_bessel_derived_window kaiser_window vorbis_window",
        "signal._stft": "frame inverse_mdct inverse_stft inverse_stft_window_fn mdct overlap_and_add stft",
        "signal._spectra": "dct idct linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms",
    },
)
__dir__ = __getattr__.names
