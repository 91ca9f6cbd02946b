"""Keras's functional models as stages of a pipeline: their layers' calls in order, and what goes from each group of them to the next."""
