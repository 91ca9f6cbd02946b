"""Python's `if`, `while`, `for` and boolean operators on tensors, inside functions that are traced."""
