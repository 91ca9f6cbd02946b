"""Variables, seeds and initial values of Keras as cells; what its objects hold."""
