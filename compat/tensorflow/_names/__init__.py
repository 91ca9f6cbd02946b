"""How a TensorFlow name is found when it is first touched, or why it is not there."""
