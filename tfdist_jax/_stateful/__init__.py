"""The engine beneath the facade: variables as cells, captured by programs, written inside replicas. Nothing native uses it."""
