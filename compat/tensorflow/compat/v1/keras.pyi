from keras._tf_keras.keras import *
