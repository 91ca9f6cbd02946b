"""What values are: tensors, types, shapes, nests, and the operators that JAX arrays get."""
