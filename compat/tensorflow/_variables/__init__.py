"""Variables, modules, and who is told of new variables."""
