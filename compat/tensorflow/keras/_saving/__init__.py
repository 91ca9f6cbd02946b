"""Models and weights in files, whole or not at all, with the seeds that Keras leaves out."""
