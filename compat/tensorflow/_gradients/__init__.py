"""Differentiation: tapes, custom gradients, forward mode, `tf.gradients`."""
