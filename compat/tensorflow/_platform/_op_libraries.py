"""`tf.load_op_library`: operations in compiled files, which only TensorFlow's own runtime can run."""

from typing import Any, NoReturn

from tfdist_jax.compat.tensorflow._platform._errors import NotFoundError


def load_op_library(library_filename: Any) -> NoReturn:
    """Refuse to load a compiled file, as TensorFlow does with files that are not made for it.

    Raises:
        NotFoundError: Always. Libraries that have an operation in Python, too, go on with that.
    """
    raise NotFoundError(
        None,
        None,
        f"The operations in {library_filename} cannot be used: compiled files are for TensorFlow's own runtime, and programs here are "
        "XLA's. Use the form in Python that a library has beside them (TensorFlow Addons: `TF_ADDONS_PY_OPS=1`), or write the "
        "operation with TensorFlow's functions, in Pallas or with `jax.ffi`.",
    )


def load_library(library_location: Any) -> NoReturn:
    """Refuse to load compiled files, as `load_op_library` does.

    Raises:
        NotFoundError: Always.
    """
    load_op_library(library_location)
