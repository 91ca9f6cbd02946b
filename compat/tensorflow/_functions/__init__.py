"""`tf.function`: signatures, traces, what they return and depend on; AutoGraph."""
