"""Random choices of iterations over datasets: kept, so that an iteration can be run again."""

import copy
import dataclasses
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow.random._random_state import global_words, host_seed

# Whatever can be cut.
Files = TypeVar("Files", np.ndarray, list[Any])


@final
class SeedSource:
    """Where a dataset that chooses at random gets its seeds from: another one for each iteration, unless it is fixed.

    Attributes:
        fixed: Whether all iterations have the same seed.
        is_own: Whether the seeds belong to this dataset, rather than being any.
    """

    def __init__(self, words: list[int], *, fixed: bool, is_own: bool, given: int | None = None) -> None:
        """Start with the words of a seed, which was `given` if not None."""
        self.fixed = fixed
        self.is_own = is_own
        self._given = given
        self._words = words
        self._next = 0

    @classmethod
    def of_seed(cls, seed: int | None, *, fixed: bool = False) -> "SeedSource":
        """Start with a seed of its own, or go on in the process's random numbers."""
        return cls(host_seed(seed), fixed=fixed, is_own=fixed or seed is not None, given=seed)

    @classmethod
    def of_function(cls) -> "SeedSource":
        """Start where functions do: at the global seed, again for each iteration; anywhere if there is none."""
        words = global_words()
        return cls(words or host_seed(None), fixed=words is not None, is_own=False)

    def __repr__(self) -> str:
        return f"{self._given}{' (in each iteration)' if self.fixed else ''}"

    def next_seed(self) -> list[int]:
        """Return the seed of the next iteration."""
        seed = self.coming_seed()
        self._next += not self.fixed
        return seed

    def first_seed(self) -> list[int]:
        """Return the seed that belongs to no iteration."""
        return [*self._words, 0]

    def coming_seed(self) -> list[int]:
        """Return the same without going on."""
        return [*self._words, self._next]

    def go_on_after(self, seed: list[int]) -> None:
        """Let the next iteration be the one after that of `seed`, which this source or its like has given."""
        *self._words, self._next = seed
        self._next += not self.fixed


@final
@dataclasses.dataclass(frozen=True)
class DataShard:
    """Which part of the data an iteration is to go over.

    Attributes:
        by: What is shared out: "files", or what the dataset's own `shard` asks to be: "hint".
        count: Number of parts.
        index: The part's number.
    """

    by: str
    count: int
    index: int


@final
class SeedLog:
    """The seeds that one iteration takes, when it begins, by the place of the dataset that asks.

    The places make a seed be found again whatever the order in which datasets ask.

    Attributes:
        is_again: Whether an earlier iteration is run again.
    """

    def __init__(self, earlier: Mapping[str, list[int]] | None = None, *, is_example: bool = False) -> None:
        """Take new seeds, except where an earlier iteration that is run again has taken one.

        An iteration that only shows an example takes none: the next one will have the same.
        """
        self.is_again = earlier is not None
        self._earlier = earlier or {}
        self._is_example = is_example
        self._seeds: dict[str, list[int]] = {}
        self._place = ""
        self._repetitions: tuple[int, ...] = ()
        self._around: list[int] | None = None
        self._share: DataShard | None = None

    def part(self, name: int | str) -> "SeedLog":
        """Return what a dataset that this one is made from draws."""
        part = copy.copy(self)
        part._place = f"{self._place}/{name}"  # noqa: SLF001
        return part

    def sharing(self, share: DataShard) -> "SeedLog":
        """Return the same for an iteration over a part of the data."""
        shared = copy.copy(self)
        shared._share = share  # noqa: SLF001
        return shared

    @property
    def share(self) -> DataShard | None:
        """Which part of the data this iteration goes over; all if None."""
        return self._share

    def own_files(self, files: Files) -> Files:
        """Return those of a dataset's files that this iteration is to read.

        Raises:
            InvalidArgumentError: If there are fewer than parts.
        """
        share = self._share
        if share is None or share.by != "files":
            return files
        if len(files) < share.count:
            raise invalid(
                f"Could not apply FILE based sharding: the dataset only has {len(files)} file(s), which is not enough for "
                f"the required {share.count} shards/workers. Write more and smaller files, or choose "
                "`tf.data.experimental.AutoShardPolicy.DATA` in the dataset's options."
            )
        return files[share.index :: share.count]

    def for_repetition(self, number: int) -> "SeedLog":
        """Return what this dataset draws when its elements are repeated for the `number`-th time."""
        part = self.part("")
        # Zeros at the end would make no difference to NumPy.
        part._repetitions = (*self._repetitions, number + 1)  # noqa: SLF001
        return part

    def parts(self, source: SeedSource) -> Callable[[int], "SeedLog"]:
        """Return what the datasets draw that a function makes during the iteration, by their number.

        Only later ones will show which there are, so one seed, taken now, is for all of them.
        """
        around = [*self._seed(source), *self._repetitions]

        def numbered(number: int) -> SeedLog:
            part = self.part(number)
            part._around = around  # noqa: SLF001
            part._share = None  # noqa: SLF001 -- They are made of what has been shared out already.
            return part

        return numbered

    def seeds(self) -> dict[str, list[int]]:
        """Return all seeds that have been taken, or will be because an earlier iteration has taken them."""
        return {**self._earlier, **self._seeds}

    def taken(self) -> dict[str, list[int]]:
        """Return the seeds that have been taken below this place."""
        return {place: seed for place, seed in dict(self._seeds).items() if place.startswith(f"{self._place}/")}

    def take(self, seeds: Mapping[str, list[int]]) -> None:
        """Count seeds as taken in this iteration too."""
        self._seeds.update(seeds)

    @property
    def is_example(self) -> bool:
        """Whether the iteration only shows an example."""
        return self._is_example

    def earlier(self) -> dict[str, list[int]]:
        """Return the seeds below this place that the earlier iteration, which is run again, has taken."""
        return {place: seed for place, seed in self._earlier.items() if place.startswith(f"{self._place}/")}

    def in_first_repetition(self) -> "SeedLog":
        """Return what this dataset draws when its elements come for the first time, before they are repeated."""
        part = copy.copy(self)
        part._repetitions = (1,) * len(self._repetitions)  # noqa: SLF001
        return part

    def relative(self, seeds: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Return seeds of places below this one by their way from here."""
        return {place.removeprefix(self._place): seed for place, seed in seeds.items()}

    def absolute(self, seeds: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Return seeds that are known by their way from this place by their places."""
        return {f"{self._place}{way}": seed for way, seed in seeds.items()}

    def generator(self, source: SeedSource) -> np.random.Generator:
        """Return random numbers for the dataset at this place."""
        repetitions = () if source.fixed else self._repetitions
        return np.random.default_rng([*self._seed(source), *repetitions])

    def words(self, source: SeedSource) -> np.ndarray:
        """Return words for the function of the dataset at this place: two of the seed, those of the first element.

        `[4]` uint32; counting the third up gives those of the next elements.
        """
        is_first = all(number == 1 for number in self._repetitions)
        repetition = [0] if is_first else np.random.SeedSequence(self._repetitions).generate_state(1)
        seed = np.random.SeedSequence(self._seed(source)).generate_state(2)
        return np.array([*seed, 0, *repetition], np.uint32)

    def _seed(self, source: SeedSource) -> list[int]:
        if self._around is not None and not source.is_own:
            return [*self._around, zlib.crc32(self._place.encode())]
        if self._place not in self._seeds:
            self._seeds[self._place] = self._next_seed(source)
        return self._seeds[self._place]

    def _next_seed(self, source: SeedSource) -> list[int]:
        earlier = self._earlier.get(self._place)
        if earlier is not None:
            source.go_on_after(earlier)
            return earlier
        return source.coming_seed() if self._is_example else source.next_seed()
