"""Checkpoints of a training by step: the state, the place in the data, files that are there whole or not at all."""
