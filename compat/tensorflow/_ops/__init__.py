"""TensorFlow's operations, by kind; the namespaces beside this package say which name is where."""
