"""tf.distribute programs on JAX, and the same strategies for native Flax training."""
