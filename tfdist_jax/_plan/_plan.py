"""Which mesh trains a model fastest, and fits: told before there are devices."""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, final

import jax

from tfdist_jax._explain import align
from tfdist_jax._hardware import HARDWARE, Hardware
from tfdist_jax._pipeline import Schedule
from tfdist_jax._plan._candidate import AXES, Candidate, Rules, find_candidates, schedule_of
from tfdist_jax._plan._figures import Features, Figures, Predictor, choose_probes, count_unknowns, make_features
from tfdist_jax._plan._host import measure_host
from tfdist_jax._plan._programs import compile_step, find_share_of_16_bits, make_absent_devices
from tfdist_jax._plan._sizes import Sizes, measure_sizes
from tfdist_jax._plan._times import estimate_times
from tfdist_jax._plan._training import Training, first_of
from tfdist_jax._sharding._layout import keeping_silent
from tfdist_jax._sharding._mesh import TENSOR, Device
from tfdist_jax._sharding._rules import AxisRules, PathRules
from tfdist_jax._strategy import Strategy

# The rest of a device's memory is the runtime's, or lies between arrays.
_USABLE = 0.9
# So many of the first meshes are compiled, whatever was predicted.
_SURE = 3


@final
@dataclasses.dataclass(frozen=True)
class PlannedMesh:
    """A mesh, and what is to be expected of it.

    Attributes:
        strategy: The strategy, for all devices that are visible where it is used.
        axes: The mesh's axes with their sizes.
        schedule: The schedule of a pipeline; empty if there is none.
        microbatches: Into how many parts the rows of each replica are divided: by the pipeline, or else for `accumulate` of
            `Strategy.value_and_grad`.
        seconds: How long a step takes.
        parts: What a device does meanwhile, to seconds.
        memory: Bytes that a device needs while the step runs: what XLA says if the mesh was compiled, else what was predicted.
        state: Bytes of the state among these.
        fits: Whether that is at most nine tenths of a device's memory.
        predicted_memory: What was predicted; None where the prediction was made of this program.
        is_compiled: Whether the mesh's program was compiled.

    Example:
        >>> import jax, tfdist_jax as td
        >>> shapes = jax.ShapeDtypeStruct((64, 64), "float32"), jax.ShapeDtypeStruct((8, 64), "float32")
        >>> options = {"devices": 8, "hardware": "h100-sxm", "has_aux": False, "axes": {"fsdp": (1,)}, "microbatches": (1,)}
        >>> (mesh,) = td.plan(lambda w, x: (x @ w).mean(), *shapes, **options).meshes
        >>> str(mesh), mesh.strategy.num_replicas == jax.device_count(), mesh.state, mesh.error
        ('data=8', True, 16384, None)
    """

    strategy: Strategy
    axes: Mapping[str, int]
    schedule: str
    microbatches: int
    seconds: float
    parts: Mapping[str, float]
    memory: int
    state: int
    fits: bool
    predicted_memory: int | None
    is_compiled: bool

    @property
    def error(self) -> float | None:
        """How far off the predicted memory was, as a share of what XLA says; None if it was not compiled, or not predicted before."""
        if self.predicted_memory is None or not self.is_compiled:
            return None
        return self.predicted_memory / self.memory - 1

    @property
    def reason(self) -> str:
        """What a step spends its time on, the longest first."""
        total, ordered = sum(self.parts.values()), sorted(self.parts.items(), key=lambda part: -part[1])
        shares = [f"{name} {100 * time / total:.0f} %" for name, time in ordered if time >= 0.01 * total]
        return ", ".join(shares)

    def __str__(self) -> str:
        return str(Candidate(tuple(self.axes[name] for name in AXES), self.microbatches, self.schedule))  # type: ignore[arg-type]


@final
@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """Meshes for a training, the best first. As text, a table.

    Attributes:
        hardware: The devices.
        num_devices: How many there are.
        meshes: Those that fit, the fastest first; then others, those first that need least memory.
        left_out: Why others were not considered, to how many.

    Example:
        >>> import jax, tfdist_jax as td
        >>> loss_fn = lambda params, batch: ((batch @ params["w"]) ** 2).mean()
        >>> params, batch = {"w": jax.ShapeDtypeStruct((512, 512), "float32")}, jax.ShapeDtypeStruct((64, 512), "float32")
        >>> plan = td.plan(loss_fn, params, batch, devices=16, hardware="tpu-v5e", has_aux=False, programs=4)
        >>> plan.meshes[0].axes["data"] * plan.meshes[0].axes["fsdp"], plan.meshes[0].strategy.__class__.__name__
        (16, 'Sharded')
    """

    hardware: Hardware
    num_devices: int
    meshes: tuple[PlannedMesh, ...]
    left_out: Mapping[str, int]

    def __repr__(self) -> str:
        return self.format()

    def format(self, count: int = 10) -> str:
        """Return the first meshes as a table, each with that number of microbatches alone that is best for it."""
        best: dict[Any, PlannedMesh] = {}
        for one in self.meshes:
            best.setdefault((*one.axes.values(), one.schedule), one)
        shown = list(best.values())
        heading = ("mesh", "#ms a step", "#GiB a device", "#of it state", "memory from", "what takes the time")
        rows = [
            (
                f"{one}" if one.fits else f"{one} (does not fit)",
                f"{1e3 * one.seconds:,.2f}",
                f"{one.memory / 2**30:,.3f}",
                f"{one.state / 2**30:,.3f}",
                _describe_source(one),
                one.reason,
            )
            for one in shown[:count]
        ]
        limit = f"{self.hardware.memory / 2**30:,.1f} GiB each, {100 * _USABLE:.0f} % of which can be used"
        lines = [f"{len(shown)} meshes of {self.num_devices} x {self.hardware.name}, {limit}", ""]
        lines += align([heading, *rows])
        if len(shown) > count:
            lines += [f"  and {len(shown) - count} others."]
        lines += [f"  Left out, {number}: {why}." for why, number in self.left_out.items()]
        return "\n".join(lines)


def _describe_source(one: PlannedMesh) -> str:
    if not one.is_compiled:
        return "prediction"
    return "its program" if one.error is None else f"its program, predicted {100 * one.error:+.1f} %"


def plan(  # noqa: PLR0913
    loss: Callable[..., Any],
    state: Any,
    batch: Any,
    *extra: Any,
    devices: int | Sequence[Device],
    hardware: str | Hardware,
    has_aux: bool = True,
    rules: PathRules = (),
    axis_rules: AxisRules = (),
    axes: Mapping[str, Collection[int]] | None = None,
    schedules: Sequence[str] = ("1f1b",),
    microbatches: Collection[int] | None = None,
    programs: int = 20,
) -> Plan:
    """Compare the meshes over which a model could be trained, by how long a step takes and by memory, without such devices.

    Of some meshes the step is compiled, for virtual CPU devices, as many as there will be; XLA says what memory it takes, how devices
    communicate and how much they compute. What the others need follows from these: it is a sum of what layouts, rows and schedules
    determine. Times follow from what a kind of device can do. The first of the ranking are compiled in the end, and the table tells how far
    off the prediction was.

    Args:
        loss: What `Strategy.value_and_grad` takes; a `td.Staged` for meshes with stages.
        state: The training's state, of which shapes are enough: a tuple that begins with the parameters, such as
            `(params, opt_state)`, or the parameters alone.
        batch: The rows of all replicas; shapes are enough.
        extra: Other arguments of the loss.
        devices: How many there will be, or those to compile for, such as of `jax.experimental.topologies`.
        hardware: The name of what they are, one of `td.HARDWARE` or "cpu" for this machine, or a `td.Hardware`.
        has_aux: Whether the loss returns `(loss, aux)`.
        rules: As in `td.Sharded`. Meshes have an axis `tensor` if rules name it.
        axis_rules: As in `td.Sharded`.
        axes: The sizes that `data`, `stage`, `fsdp` and `tensor` may have, such as `{"tensor": (1, 8), "stage": (1,)}`; all if not named.
        schedules: Those of pipelines.
        microbatches: In how many parts rows may be computed; powers of two if None.
        programs: How many programs are compiled at most, a few seconds each.

    Raises:
        ValueError: If the hardware is not known, an argument is out of its range, or no mesh is left.

    Example:
        >>> import jax, jax.numpy as jnp, tfdist_jax as td
        >>> def make_params():
        ...     return {"up": jnp.zeros((1024, 4096)), "down": jnp.zeros((4096, 1024))}
        >>> loss_fn = lambda params, batch: ((jax.nn.relu(batch @ params["up"]) @ params["down"]) ** 2).mean()
        >>> rules = {"up": jax.P(None, "tensor"), "down": jax.P("tensor")}
        >>> batch = jax.ShapeDtypeStruct((256, 1024), "float32")
        >>> options = {"has_aux": False, "rules": rules, "axes": {"fsdp": (1, 8)}, "microbatches": (1,), "programs": 6}
        >>> plan = td.plan(loss_fn, jax.eval_shape(make_params), batch, devices=8, hardware="h100-sxm", **options)
        >>> sorted(str(mesh) for mesh in plan.meshes)
        ['data=2,tensor=4', 'data=4,tensor=2', 'data=8', 'fsdp=8', 'tensor=8']
    """
    shapes = jax.eval_shape(lambda *given: given, state, batch, *extra)
    training = Training(loss, shapes[0], first_of, shapes[1], shapes[2:], has_aux)
    stack = getattr(loss, "stack", None) if not getattr(loss, "is_listed", True) else None
    return make_plan(
        training,
        devices=devices,
        hardware=hardware,
        rules=Rules(rules, axis_rules, stack),
        axes=axes,
        schedules=schedules,
        microbatches=microbatches,
        programs=programs,
    )


def make_plan(  # noqa: PLR0913
    training: Training,
    *,
    devices: int | Sequence[Device],
    hardware: str | Hardware,
    rules: Rules,
    axes: Mapping[str, Collection[int]] | None = None,
    schedules: Sequence[str] = ("1f1b",),
    microbatches: Collection[int] | None = None,
    programs: int = 20,
) -> Plan:
    """Compare meshes; see `plan`."""
    count = devices if isinstance(devices, int) else len(devices)
    if isinstance(devices, bool) or count < 1:
        raise ValueError(f"`devices` is how many there will be, 1 or more, got {devices!r}.")
    if isinstance(programs, bool) or programs < 1:
        raise ValueError(f"`programs` is how many programs are compiled at most, 1 or more, got {programs!r}.")
    axes = {} if axes is None else axes
    if unknown := [name for name in axes if name not in AXES]:
        raise ValueError(f"`axes` names {unknown[0]!r}, but meshes that are compared have {', '.join(AXES)}.")
    found = find_candidates(
        count,
        training.num_rows,
        max_stages=training.count_layers(),
        choices=axes if TENSOR in rules.named_axes else {TENSOR: (1,), **axes},
        schedules=schedules,
        microbatches=microbatches,
    )
    with keeping_silent():
        comparison = Comparison(
            training, rules, make_absent_devices(count) if isinstance(devices, int) else tuple(devices)
        )
        comparison.consider(found)
        return comparison.make_plan(_find_hardware(hardware, count), programs)


def _find_hardware(hardware: str | Hardware, count: int) -> Hardware:
    if isinstance(hardware, Hardware):
        return hardware
    if hardware == "cpu":
        return measure_host(count)
    if hardware not in HARDWARE:
        raise ValueError(
            f"`hardware` is one of {', '.join([*HARDWARE, 'cpu'])}, got {hardware!r}. Describe others by a td.Hardware."
        )
    return HARDWARE[hardware]


@final
@dataclasses.dataclass(frozen=True)
class _Considered:
    """What is known of a candidate before anything is compiled."""

    strategy: Strategy
    schedule: Schedule | None
    sizes: Sizes
    features: Features


@final
class Comparison:
    """Candidates, and what is known of them.

    Attributes:
        considered: Those that are compared.
        known: What those cost that were compiled.
        predicted: What was predicted of them before.
        left_out: Why others are not compared, to how many.
    """

    def __init__(self, training: Training, rules: Rules, devices: tuple[Device, ...]) -> None:
        """Begin without candidates."""
        self._training, self._rules, self._devices = training, rules, devices
        self._sizes: dict[tuple[int, ...], Sizes] = {}
        self.considered: dict[Candidate, _Considered] = {}
        self.known: dict[Candidate, Figures] = {}
        self.predicted: dict[Candidate, Figures] = {}
        self.left_out: collections.Counter[str] = collections.Counter()

    def consider(self, candidates: Iterable[Candidate]) -> None:
        """Take candidates whose layouts are possible.

        Raises:
            ValueError: If none is.
        """
        for candidate in candidates:
            try:
                strategy = self._rules.make_strategy(candidate, self._devices)
                if candidate.sizes not in self._sizes:
                    self._sizes[candidate.sizes] = measure_sizes(self._training, strategy)
            except (ValueError, NotImplementedError) as error:
                self._leave_out(error)
                continue
            sizes, schedule = self._sizes[candidate.sizes], schedule_of(strategy)
            features = make_features(candidate, sizes, self._training.num_rows, schedule)
            self.considered[candidate] = _Considered(strategy, schedule, sizes, features)
        if not self.considered:
            reasons = (
                "; ".join(self.left_out) or "its rows do not divide, or no sizes of axes multiply to as many devices"
            )
            raise ValueError(
                f"No mesh of {len(self._devices)} devices is possible for batches of {self._training.num_rows} rows: {reasons}."
            )

    def compile(self, candidate: Candidate) -> None:
        """Compile a candidate's program; one that cannot be is not compared any more."""
        of = self.considered[candidate]
        try:
            accumulate = 1 if of.schedule else candidate.microbatches
            self.known[candidate] = compile_step(self._training, of.strategy, accumulate)
        except (ValueError, NotImplementedError) as error:
            if len(self.considered) == 1:
                raise
            del self.considered[candidate]
            self._leave_out(error)

    def compile_probes(self, programs: int) -> None:
        """Compile of each family those programs that tell most of the others."""
        families: dict[str, list[Candidate]] = collections.defaultdict(list)
        for candidate, of in self.considered.items():
            families[of.features.family].append(candidate)
        unknowns = {
            name: count_unknowns([self.considered[one].features for one in members])
            for name, members in families.items()
        }
        for name, members in families.items():
            share = max(1, programs * unknowns[name] // sum(unknowns.values()))
            chosen = choose_probes([self.considered[one].features for one in members], share)
            for index in chosen:
                self.compile(members[index])

    def predict(self) -> dict[Candidate, Figures]:
        """Return what all candidates cost, as far as it can be told."""
        predictor = Predictor(
            {
                one: (self.considered[one].features, self.considered[one].sizes, figures)
                for one, figures in self.known.items()
            }
        )
        able = {self.considered[one].features.family for one in self.known}
        others = {
            one: of for one, of in self.considered.items() if of.features.family in able and one not in self.known
        }
        return self.known | {one: predictor.predict(one, of.features) for one, of in others.items()}

    def make_plan(self, hardware: Hardware, programs: int) -> Plan:
        """Compile programs, and return the candidates in order."""
        self.compile_probes(max(1, programs - _SURE))
        share = self._find_share_of_16_bits()
        while True:
            figures = self.predict()
            meshes = {one: self._describe(one, figures[one], hardware, share) for one in figures}
            ordered = sorted(meshes, key=lambda one: _rank(meshes[one]))
            unsure = [one for one in ordered[:_SURE] if one not in self.known]
            if not unsure or len(self.known) >= programs:
                return Plan(hardware, len(self._devices), tuple(meshes[one] for one in ordered), dict(self.left_out))
            self.predicted[unsure[0]] = figures[unsure[0]]
            self.compile(unsure[0])

    def _find_share_of_16_bits(self) -> float:
        if not self.known:
            raise ValueError(f"No program can be compiled: {'; '.join(self.left_out)}.")
        one = next(iter(self.known))
        of = self.considered[one]
        return find_share_of_16_bits(self._training, of.strategy, 1 if of.schedule else one.microbatches)

    def _describe(
        self, candidate: Candidate, figures: Figures, hardware: Hardware, share_of_16_bits: float
    ) -> PlannedMesh:
        of = self.considered[candidate]
        times = estimate_times(candidate, of.sizes, figures, of.schedule, hardware, share_of_16_bits)
        arguments, predicted = of.sizes.state + of.sizes.batch, self.predicted.get(candidate)
        memory, is_compiled = arguments + round(figures.temporary), candidate in self.known
        if not is_compiled:
            predicted = figures
        return PlannedMesh(
            strategy=self._rules.make_strategy(candidate),
            axes=candidate.axes,
            schedule=candidate.schedule,
            microbatches=candidate.microbatches,
            seconds=times.seconds,
            parts=times.parts,
            memory=memory,
            state=of.sizes.state,
            fits=memory <= _USABLE * hardware.memory,
            predicted_memory=None if predicted is None else arguments + round(predicted.temporary),
            is_compiled=is_compiled,
        )

    def _leave_out(self, error: Exception) -> None:
        self.left_out[str(error).partition("\n")[0].removesuffix(".")] += 1


def _rank(mesh: PlannedMesh) -> tuple[bool, float, float, int]:
    """Return by what meshes are ordered: of times that are as good as equal, fewer microbatches are simpler."""
    seconds = float(f"{mesh.seconds:.2g}")
    if mesh.fits:
        return False, seconds, 0, mesh.microbatches
    return True, mesh.memory, seconds, mesh.microbatches
