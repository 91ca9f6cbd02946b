"""What feature columns ask for: features that are transformed once, variables and tables."""

import tensorflow as tf
from _facts import show


class Features:
    """The features of a batch, and what columns have made of them."""

    def __init__(self, features):
        self.features = features
        self.made = {}

    def get(self, key, state_manager, training=None):
        if key not in self.made:
            if isinstance(key, str):
                given = self.features[key]
                known = given if isinstance(given, tf.SparseTensor) else tf.convert_to_tensor(given)
                self.made[key] = known if len(known.shape) > 1 else tf.expand_dims(known, -1)
            else:
                self.made[key] = key.transform_feature(self, state_manager)
        return self.made[key]


class State:
    """Variables with known values, and tables."""

    def __init__(self):
        self.variables = {}
        self.tables = {}

    def create_variable(
        self, feature_column, name, shape, dtype=None, trainable=True, use_resource=True, initializer=None
    ):
        count = shape[0] * shape[1]
        self.variables[feature_column, name] = tf.Variable(tf.reshape(tf.range(count, dtype=tf.float32) / 7, shape))

    def get_variable(self, feature_column, name):
        return self.variables[feature_column, name]

    def add_resource(self, feature_column, name, resource):
        self.tables[feature_column, name] = resource

    def has_resource(self, feature_column, name):
        return (feature_column, name) in self.tables

    def get_resource(self, feature_column, name):
        return self.tables[feature_column, name]


def show_sparse(label, tensor):
    if tensor is not None:
        show(label, [tensor.indices, tensor.values, tensor.dense_shape])


def show_ids(label, column, features):
    """Print what a column of categories makes of features."""
    ids, weights = column.get_sparse_tensors(Features(features), State())
    show_sparse(label, ids)
    show_sparse(f"{label}, weights", weights)


def vectors(column, features):
    """Return the vectors that a column makes of features."""
    state = State()
    if hasattr(column, "create_state"):
        column.create_state(state)
    return column.get_dense_tensor(Features(features), state)


def sequences(column, features):
    """Return the sequences that a column makes of features, and their lengths."""
    state = State()
    column.create_state(state) if hasattr(column, "create_state") else None
    found = column.get_sequence_dense_tensor(Features(features), state)
    return [found.dense_tensor, found.sequence_length]


def show_column(column):
    """Print what a column says of itself."""
    show("column", repr(column))
    show("name", column.name)
    show("parents", [parent if isinstance(parent, str) else parent.name for parent in column.parents])
    show("spec", repr(sorted(column.parse_example_spec.items())))
    if hasattr(column, "num_buckets"):
        show("buckets", column.num_buckets)
    if hasattr(column, "variable_shape"):
        show("shape", column.variable_shape.as_list())
    config = column.get_config()
    show("config", repr(config))
    show("again", type(column).from_config(config) == column)
