"""`tf.strings.format`: tensors in a text."""

from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._ops._host_operation import make_strings, numbers_of
from tfdist_jax.compat.tensorflow._ops._printing import array_text
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor


def format(
    template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None
) -> HostTensor:
    """Return a string in which tensors stand for placeholders, written as `tf.print` writes them.

    Args:
        template: The string.
        inputs: The tensors, in a list or tuple; or one.
        placeholder: What they stand for.
        summarize: How many elements to write at both ends of an axis; all of them if negative.
        name: Unused.

    Raises:
        ValueError: If there are not as many tensors as placeholders.
    """
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    parts = template.split(placeholder)
    if len(parts) - 1 != len(tensors):
        raise ValueError(
            f"The template expects {len(parts) - 1} tensors, but the inputs only has {len(tensors)}. Please ensure the "
            "number of placeholders in template matches inputs length."
        )
    texts = [_text(tensor, summarize) for tensor in tensors]
    text = parts[0] + "".join(shown + part for shown, part in zip(texts, parts[1:], strict=True))
    return make_strings([text.encode()], ())


def _text(value: Any, summarize: int) -> str:
    return value.printed(summarize) if isinstance(value, Composite) else array_text(_array(value), summarize)


def _array(value: Any) -> np.ndarray:
    tensor = value if is_tensor(value) else convert_to_tensor(value)
    return np.asarray(tensor) if isinstance(tensor, HostTensor) else numbers_of(tensor)
