"""Methods of `tf.data.Dataset` that keep elements in folders.

They import what they use when they are called: protocol buffers take a third of the time that `tf.data` takes to start.
"""

import os
from collections.abc import Callable
from typing import Any, Self

from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._planned import Planned
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog


def as_path(path: Any) -> str:
    """Return a path that is a string, a path object or a tensor.

    Raises:
        TypeError: If it is none.
    """
    given = path.numpy() if is_tensor(path) else path
    if not isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"A file's name is a string, got {path!r}.")
    return os.fsdecode(given)


class Saving(Planned):
    """What saves elements and loads them."""

    def save(
        self,
        path: Any,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: Any = None,
    ) -> None:
        """Write the elements to a folder, in TensorFlow's form, which `tf.data.Dataset.load` reads, there too.

        A folder of saved elements keeps those that it has until the new ones are complete.
        Ref: https://www.tensorflow.org/api_docs/python/tf/data/Dataset#save

        Args:
            path: The folder, which is made if it is not there; or one in a bucket.
            compression: None or "GZIP".
            shard_func: Gives the number of an element's shard, int64; all are in one by default.
            checkpoint_args: None.

        Raises:
            InvalidArgumentError: If there is no such compression, or `shard_func` returns something else.
            TypeError: If elements are made of something else than tensors, sparse and ragged ones and None.
            NotImplementedError: If there are `checkpoint_args`.
        """
        if checkpoint_args is not None:
            raise NotImplementedError(
                "`Dataset.save` keeps no checkpoints of its own progress: one that is stopped leaves what was there before, and begins "
                "anew. Leave `checkpoint_args` out."
            )
        from tfdist_jax.compat.tensorflow.data._saved_folder import FolderWriter
        from tfdist_jax.compat.tensorflow.data._saved_plans import shard_function

        require_host()
        seed_log = SeedLog()
        elements = self._plan.elements(seed_log)
        function = None if shard_func is None else ElementFunction(shard_func)
        writer = FolderWriter(
            as_path(path), self.element_spec, _compression(compression), shard_function(function, seed_log)
        )
        try:
            for element in elements:
                writer.write(element)
        except BaseException:
            writer.discard()
            raise
        writer.finish(0)

    @classmethod
    def load(
        cls,
        path: Any,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[..., Any] | None = None,
        wait: bool = False,
    ) -> Self:
        """Return the dataset of the elements that `save` has written to a folder, here or in TensorFlow.

        Ref: https://www.tensorflow.org/api_docs/python/tf/data/Dataset#load

        Args:
            path: The folder.
            element_spec: The elements' spec, which the folder tells by itself.
            compression: What they were saved with: None or "GZIP".
            reader_func: Makes the dataset of elements from one of datasets, one for each shard; they come in turn by default.
            wait: Whether to wait until there is such a folder.

        Raises:
            NotFoundError: If there is none.
            InvalidArgumentError: If its elements are of another type than `element_spec`.
            NotImplementedError: If it was written in a way that only TensorFlow reads.
            DataLossError: Now or in an iteration, if it is damaged.
        """
        from tfdist_jax.compat.tensorflow.data._saved_folder import missing, read_folder, wait_for_folder
        from tfdist_jax.compat.tensorflow.data._saved_plans import Load

        folder_path = as_path(path)
        if wait:
            wait_for_folder(folder_path)
        folder = read_folder(folder_path)
        if folder is None:
            raise missing(folder_path)
        spec = folder.spec if element_spec is None else element_spec
        if spec is None:
            raise ValueError(f"{folder_path} does not tell what its elements are: give `element_spec`.")
        plan = Load(folder_path, _compression(compression), reader_func, cls, spec)
        plan.plan()
        return cls(plan)

    def snapshot(
        self,
        path: Any,
        compression: str | None = "AUTO",
        reader_func: Callable[..., Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """Save the elements in the first whole iteration, and read them in later ones, in this run and later ones.

        Each pipeline has a folder of its own in `path`: another one where its steps, the arrays in it, or its functions, with the numbers,
        strings and arrays that they refer to, also as attributes of the program's own objects, are others. What libraries' objects hold,
        such as variables and tables, makes no difference: delete the folder when they have changed. An iteration that does not come
        to its end leaves nothing.

        Ref: https://www.tensorflow.org/api_docs/python/tf/data/Dataset#snapshot. Difference: "AUTO" and "SNAPPY" do not compress.

        Args:
            path: The folder, which is made if it is not there.
            compression: "AUTO", "SNAPPY" or None, or "GZIP".
            reader_func: As in `load`.
            shard_func: As in `save`.
            name: Unused.

        Raises:
            InvalidArgumentError: If there is no such compression.
        """
        from tfdist_jax.compat.tensorflow.data._saved_plans import Snapshot

        chosen = None if compression in ("AUTO", "SNAPPY") else compression
        function = None if shard_func is None else ElementFunction(shard_func)
        reading = as_path(path), _compression(chosen), reader_func, self._with
        return self._with(Snapshot(*reading, self._plan, function))


def _compression(compression: str | None) -> str:
    if compression in (None, "", "NONE"):
        return ""
    if compression != "GZIP":
        raise invalid(f'Invalid `compression` {compression!r}. There are None and "GZIP".')
    return compression
