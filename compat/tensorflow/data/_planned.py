"""What a dataset is made of: a plan and options."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Self, final

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow.data._options import Options
from tfdist_jax.compat.tensorflow.data._plan import Plan, Selection, select


@final
@dataclasses.dataclass(frozen=True)
class Files:
    """Files that can be shared out.

    Attributes:
        count: How many there are.
        are_read: Whether the dataset reads them itself, rather than handing their names to the user's functions.
    """

    count: int
    are_read: bool

    @classmethod
    def of_all(cls, datasets: "Iterable[Planned]") -> "Files | None":
        """Return what holds for a dataset that is made of several: what holds for each."""
        found = [dataset.files for dataset in datasets]
        known = [files for files in found if files is not None]
        if not known or len(known) < len(found):
            return None
        return cls(min(files.count for files in known), all(files.are_read for files in known))


class Planned:
    """A plan with options; the methods that make datasets of it are in the classes below."""

    def __init__(self, plan: Plan, options: Options | None = None, files: Files | None = None) -> None:
        """Hold a plan; users make datasets with `from_tensor_slices` and its like.

        Args:
            plan: The plan.
            options: The options in force.
            files: Of which files all of the elements are made; None if some are not.
        """
        self._plan = plan
        self._options = options or Options()
        self._files = files

    @classmethod
    def _of_all(cls, plan: Plan, datasets: "Sequence[Planned]") -> Self:
        """Make the dataset of a plan that is made of several datasets'; options of later ones override earlier ones'."""
        options = functools.reduce(Options.merge, (dataset._options for dataset in datasets))  # noqa: SLF001
        return cls(plan, options, Files.of_all(datasets))

    def _with(self, plan: Plan, *beside: "Planned") -> Self:
        return self._of_all(plan, [self, *beside])

    def _select(self, selection: Selection) -> Self:
        return self._with(select(self._plan, selection))

    def options(self) -> Options:
        """Return the options in force, which cannot be changed."""
        return self._options.fixed()

    @property
    def files(self) -> Files | None:
        """Of which files all of the elements are made; None if some are not."""
        return self._files

    @property
    def element_spec(self) -> Any:
        """A `tf.TensorSpec` for each tensor of an element."""
        return self._plan.make_spec()


def positive(name: str, value: Any) -> int:
    """Return `value` as a number of 1 or more.

    Raises:
        InvalidArgumentError: If it is smaller.
    """
    if int(value) < 1:
        raise invalid(f"`{name}` must be 1 or more, got {value!r}.")
    return int(value)
