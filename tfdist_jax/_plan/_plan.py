"""Which mesh trains a model fastest, and fits: told before there are devices."""

import collections
import dataclasses
import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, final

import jax

from tfdist_jax._explain import align
from tfdist_jax._hardware import HARDWARE, Hardware
from tfdist_jax._pipeline import SCHEDULES, Schedule
from tfdist_jax._plan._candidate import AXES, Candidate, Rules, find_candidates, schedule_of
from tfdist_jax._plan._figures import Features, Figures, Predictor, choose_probes, count_unknowns, make_features
from tfdist_jax._plan._host import measure_host
from tfdist_jax._plan._programs import compile_step, find_share_of_16_bits, make_absent_devices
from tfdist_jax._plan._sizes import Sizes, measure_sizes
from tfdist_jax._plan._times import estimate_times
from tfdist_jax._plan._training import Training, first_of, named_by_arrays
from tfdist_jax._sharding._layout import find_idle_axes, keeping_silent, tree_paths
from tfdist_jax._sharding._mesh import TENSOR, Device
from tfdist_jax._sharding._rules import AxisRules, PathRules, find_unmatched
from tfdist_jax._strategy import Strategy

# The rest of a device's memory is the runtime's, or lies between arrays.
_USABLE = 0.9
# So many of the first meshes are compiled, whatever was predicted.
_SURE = 3
# Of why meshes are left out, so much is shown.
_MOST_REASONS = 5


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
        memory: Bytes that a device needs while the step runs: of what the step is given, and what it needs besides, as XLA says if the mesh
            was compiled, else as predicted.
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
        return str(Candidate(tuple(self.axes[name] for name in AXES), self.microbatches, self.schedule))


@final
@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """Meshes for a training, the best first. As text, a table.

    Attributes:
        hardware: The devices.
        num_devices: How many there are.
        meshes: Those that fit, the fastest first, of times that are equal to two digits those with fewer microbatches; then others, those
            first that need least memory.
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
        meshes = f"{len(shown)} mesh{'es' * (len(shown) != 1)}"
        lines = [f"{meshes} of {self.num_devices} x {self.hardware.name}, {limit}", ""]
        lines += align([heading, *rows])
        if len(shown) > count:
            lines += [f"  And {len(shown) - count} more."]
        reasons = sorted(self.left_out.items(), key=lambda item: -item[1])
        lines += [f"  Left out, with all microbatches {number}: {why}." for why, number in reasons[:_MOST_REASONS]]
        if len(reasons) > _MOST_REASONS:
            lines += [f"  And for {len(reasons) - _MOST_REASONS} other reasons."]
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
    params: Callable[[Any], Any] | None = None,
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
    determine. Times follow from what a kind of device can do. The first three of the table are compiled in the end, if `programs` leaves
    room, and it tells how far off the prediction was.

    Args:
        loss: What `Strategy.value_and_grad` takes; a `td.Staged` for meshes with stages.
        state: The training's state, of which shapes are enough, such as `(params, opt_state)`.
        batch: The rows of all replicas; shapes are enough.
        extra: Other arguments of the loss.
        devices: How many there will be, or those to compile for, such as of `jax.experimental.topologies`.
        hardware: The name of what they are, one of `td.HARDWARE` or "cpu" for this machine, or a `td.Hardware`.
        has_aux: Whether the loss returns `(loss, aux)`.
        params: From the state to the parameters. If not given, these are the first of a tuple, or else all of the state.
        rules: As in `td.Sharded`. Meshes have an axis `tensor` if rules name it, or arrays of Flax's themselves.
        axis_rules: As in `td.Sharded`.
        axes: The sizes that `data`, `stage`, `fsdp` and `tensor` may have, such as `{"tensor": (1, 8), "stage": (1,)}`; all if not named.
        schedules: Those of pipelines, by name.
        microbatches: In how many parts rows may be computed; powers of two if None. A pipeline has as many as stages or more.
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
    return make_plan(
        Training(loss, shapes[0], params or first_of, shapes[1], shapes[2:], has_aux),
        devices=devices,
        hardware=hardware,
        rules=(rules, axis_rules),
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
    rules: tuple[PathRules, AxisRules],
    axes: Mapping[str, Collection[int]] | None = None,
    schedules: Sequence[str] = ("1f1b",),
    microbatches: Collection[int] | None = None,
    programs: int = 20,
) -> Plan:
    """Compare meshes; see `plan`."""
    given = tuple(devices) if isinstance(devices, Sequence) and not isinstance(devices, str) else ()
    count = _require_int("devices", len(given) or devices)
    programs = _require_int("programs", programs)
    axes = {name: tuple(sizes) if isinstance(sizes, Iterable) else (sizes,) for name, sizes in (axes or {}).items()}
    if unknown := [name for name in axes if name not in AXES]:
        raise ValueError(f"`axes` names {unknown[0]!r}, but meshes that are compared have {', '.join(AXES)}.")
    for name, sizes in axes.items():
        axes[name] = tuple(_require_int(f"axes[{name!r}]", size) for size in sizes)
    if microbatches is not None:
        microbatches = [_require_int("microbatches", part) for part in microbatches]
    schedules = (schedules,) if isinstance(schedules, str) else tuple(schedules)
    if unknown := [name for name in schedules if name not in SCHEDULES]:
        raise ValueError(f"`schedules` are of {', '.join(SCHEDULES)}, got {unknown[0]!r}.")
    found_rules = Rules(*rules, training.stack, frozenset(named_by_arrays(training)))
    candidates = find_candidates(
        count,
        training.num_rows,
        max_stages=training.count_layers(),
        choices=axes if TENSOR in found_rules.named_axes else {TENSOR: (1,), **axes},
        schedules=schedules,
        microbatches=microbatches,
    )
    if unmatched := find_unmatched(rules[0], tree_paths(training.state)):
        warnings.warn(f"The rules {unmatched} match the end of no path in the state.", stacklevel=3)
    with keeping_silent():
        comparison = Comparison(training, found_rules, given or make_absent_devices(count))
        comparison.consider(candidates)
        return comparison.make_plan(_find_hardware(hardware, count), programs)


def _require_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 1:
        raise ValueError(f"`{name}` is to be a number of 1 or more, got {value!r}.")
    return operator.index(value)


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
        attempts: How many programs were compiled, or could not be.
    """

    def __init__(self, training: Training, rules: Rules, devices: tuple[Device, ...]) -> None:
        """Begin without candidates."""
        self._training, self._rules, self._devices = training, rules, devices
        self._sizes: dict[tuple[int, ...], Sizes | str] = {}
        self.considered: dict[Candidate, _Considered] = {}
        self.known: dict[Candidate, Figures] = {}
        self.predicted: dict[Candidate, Figures] = {}
        self.left_out: collections.Counter[str] = collections.Counter()
        self.attempts = 0

    def consider(self, candidates: Iterable[Candidate]) -> None:
        """Take candidates whose layouts are possible.

        Raises:
            ValueError: If none is.
        """
        for candidate in candidates:
            try:
                strategy = self._rules.make_strategy(candidate, self._devices)
                schedule = schedule_of(strategy)
                self._check_layers(schedule)
            except (ValueError, NotImplementedError) as error:
                self._leave_out(error)
                continue
            if candidate.sizes not in self._sizes:
                self._sizes[candidate.sizes] = self._measure(strategy)
            sizes = self._sizes[candidate.sizes]
            if isinstance(sizes, str):
                self.left_out[sizes] += 1
                continue
            features = make_features(candidate, sizes, self._training.num_rows, schedule)
            self.considered[candidate] = _Considered(strategy, schedule, sizes, features)
        if not self.considered:
            reasons = "; ".join(self.left_out) or (
                "rows do not divide evenly over the replicas and microbatches, of which a pipeline has as many as stages or more; or no "
                "sizes of axes that are allowed multiply to as many devices; or there are more stages than "
                f"{self._training.count_layers()}, as many as this loss can be divided into"
            )
            raise ValueError(
                f"No mesh of {len(self._devices)} devices is possible for batches of {self._training.num_rows} rows: {reasons}."
            )

    def _check_layers(self, schedule: Schedule | None) -> None:
        layers = self._training.count_layers()
        if schedule is not None and self._training.stack and layers % schedule.num_stages:
            raise ValueError(f"{layers} layers do not divide into {schedule.num_stages} stages")

    def _measure(self, strategy: Strategy) -> Sizes | str:
        """Return what a device holds, or why the state cannot lie so."""
        try:
            shardings = strategy.shardings(self._training.state)
            if idle := find_idle_axes(strategy.mesh, shardings, has_stages=strategy.pipeline is not None):
                return f"over {', '.join(map(repr, idle))}, neither rows nor arrays of the state are split"
            return measure_sizes(self._training, strategy)
        except ValueError as error:
            return _first_line(error)

    def compile(self, candidate: Candidate) -> None:
        """Compile a candidate's program; one that cannot be is not compared any more."""
        of = self.considered[candidate]
        self.attempts += 1
        try:
            accumulate = 1 if of.schedule else candidate.microbatches
            self.known[candidate] = compile_step(self._training, of.strategy, accumulate)
        except (ValueError, NotImplementedError, jax.errors.JaxRuntimeError) as error:
            if len(self.considered) == 1:
                raise
            del self.considered[candidate]
            self._leave_out(error)

    def compile_probes(self, programs: int) -> None:
        """Compile of each family those programs that tell most of the others; others of it where these cannot be."""
        families: dict[str, list[Candidate]] = collections.defaultdict(list)
        for candidate, of in self.considered.items():
            families[of.features.family].append(candidate)
        features = {name: [self.considered[one].features for one in members] for name, members in families.items()}
        unknowns = {name: count_unknowns(of) for name, of in features.items()}
        end = self.attempts + programs
        for name, members in families.items():
            share = max(1, programs * unknowns[name] // sum(unknowns.values()))
            ordered = [members[index] for index in choose_probes(features[name])]
            compiled = 0
            for one in ordered:
                if compiled == share or self.attempts >= end:
                    break
                self.compile(one)
                compiled += one in self.known

    def predict(self) -> dict[Candidate, Figures]:
        """Return what all candidates cost; those of which it cannot be told are not compared any more."""
        predictor = Predictor(
            {
                one: (self.considered[one].features, self.considered[one].sizes, figures)
                for one, figures in self.known.items()
            }
        )
        found = dict(self.known)
        for one in [one for one in self.considered if one not in self.known]:
            try:
                found[one] = predictor.predict(one, self.considered[one].features)
            except ValueError as error:
                del self.considered[one]
                self._leave_out(error)
        return found

    def make_plan(self, hardware: Hardware, programs: int) -> Plan:
        """Compile programs, and return the candidates in order."""
        self.compile_probes(programs - min(_SURE, programs // 4))
        if not self.known:
            raise ValueError(f"No program can be compiled: {'; '.join(self.left_out)}.")
        share = self._find_share_of_16_bits()
        while True:
            figures = self.predict()
            meshes = {one: self._describe(one, figures[one], hardware, share) for one in figures}
            ordered = sorted(meshes, key=lambda one: _rank(meshes[one]))
            first = {(one.sizes, one.schedule): one for one in reversed(ordered)}
            rows = sorted(first.values(), key=ordered.index)[:_SURE]
            unsure = [one for one in rows if one not in self.known]
            if not unsure or self.attempts >= programs:
                return Plan(hardware, len(self._devices), tuple(meshes[one] for one in ordered), dict(self.left_out))
            self.predicted[unsure[0]] = figures[unsure[0]]
            self.compile(unsure[0])

    def _find_share_of_16_bits(self) -> float:
        one = next(iter(self.known))
        of = self.considered[one]
        return find_share_of_16_bits(self._training, of.strategy, 1 if of.schedule else one.microbatches)

    def _describe(
        self, candidate: Candidate, figures: Figures, hardware: Hardware, share_of_16_bits: float
    ) -> PlannedMesh:
        of, is_compiled = self.considered[candidate], candidate in self.known
        times = estimate_times(candidate, of.sizes, figures, of.schedule, hardware, share_of_16_bits)
        predicted = self.predicted.get(candidate) if is_compiled else figures
        memory = of.sizes.arguments + round(figures.temporary)
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
            predicted_memory=None if predicted is None else of.sizes.arguments + round(predicted.temporary),
            is_compiled=is_compiled,
        )

    def _leave_out(self, error: Exception) -> None:
        self.left_out[_first_line(error)] += 1


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].removesuffix(".")


def _rank(mesh: PlannedMesh) -> tuple[bool, float, float, int, float]:
    """Return by what meshes are ordered: of times that are as good as equal, fewer microbatches are simpler."""
    seconds = float(f"{mesh.seconds:.2g}")
    if mesh.fits:
        return False, seconds, 0, mesh.microbatches, mesh.seconds
    return True, mesh.memory, seconds, mesh.microbatches, mesh.seconds
