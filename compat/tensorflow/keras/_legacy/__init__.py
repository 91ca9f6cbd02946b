"""What TensorFlow 2's programs use and Keras 3 no longer has."""
