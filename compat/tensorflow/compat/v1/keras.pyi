# Made by `make api` from the namespace's table of names.
from keras._tf_keras.keras import *
