"""TensorFlow's own checkpoint files, read and written without TensorFlow."""
