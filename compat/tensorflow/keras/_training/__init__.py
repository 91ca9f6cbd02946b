"""`fit`, `evaluate`, `predict` and optimizers over replicas: one SPMD program for each step."""
