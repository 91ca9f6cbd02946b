"""Automatic differentiation of what has run: a tape as a JAX trace, and the pullbacks that it keeps."""
