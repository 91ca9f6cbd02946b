"""`import tfdist_jax.compat.tensorflow as tf`: the TensorFlow API on JAX."""
