import tensorflow as tf


def plain(x):
    return x * x


sq = tf.function(plain)
