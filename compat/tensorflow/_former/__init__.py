"""Modules that programs of earlier TensorFlow 2 import, private ones among them, as views of public names."""
