"""What a backup holds beside the weights, in a group of its own in the same file."""

import json
import os
from typing import Any

import h5py
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow.keras._saving._hdf5 import HDF5File

_GROUP = "_training"

Arrays = dict[str, list[np.ndarray]]
"""Arrays by name."""


def write(about: dict[str, Any], arrays: Arrays, path: str) -> None:
    """Add to a complete file of weights what JSON can hold of `about`, with lists for arrays; and arrays as they are."""
    with HDF5File(path, "a") as file:
        group = file.create_group(_GROUP)
        text = json.dumps(about, default=lambda array: np.asarray(array).tolist())
        group["about"] = np.void(text.encode())
        for name, values in arrays.items():
            kept = group.create_group(f"arrays/{name}")
            for i, value in enumerate(values):
                # As bytes: the format does not know all of JAX's types.
                kept[str(i)] = np.frombuffer(value.tobytes(), np.uint8)
                kept[str(i)].attrs.update(shape=value.shape, dtype=str(value.dtype))


def read(path: str) -> tuple[dict[str, Any] | None, Arrays]:
    """Return what was written beside the weights; nothing if Keras alone wrote the file."""
    if not os.path.exists(path):
        return None, {}
    with h5py.File(path) as file:
        if _GROUP not in file:
            return None, {}
        group: Any = file[_GROUP]
        arrays = {name: [_array(kept[str(i)]) for i in range(len(kept))] for name, kept in group["arrays"].items()}
        return json.loads(group["about"][()].tobytes()), arrays


def _array(kept: Any) -> np.ndarray:
    return np.frombuffer(kept[()].tobytes(), jnp.dtype(kept.attrs["dtype"])).reshape(tuple(kept.attrs["shape"]))
