"""A program cut by devices: each equation gets one, and those of a device that can run together become a stage.

XLA's programs run on one device, or on all devices of a mesh alike. So a program whose parts lie on several devices becomes several
programs, which run one after the other and hand each other what they need.

An equation's device is that of the scope it was traced in (`_device_scope`), which its derivatives share. Without one, it is that of
a cell that the equation takes, else that of its inputs, of which the larger ones decide; else that of what takes its results, if it
is one; else the device of the call. What lies on the processor does not keep equations from an accelerator. A conditional or loop is
one equation: scopes inside of it count for nothing. If all that is placed lies on one device of the call's kind, the whole program
runs there.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from tfdist_jax._device_scope import Device, device_of, on_device

Value = Any
"""What stands for an array in a program: a variable, or a name for a constant that is returned."""

_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"})


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """The equations of a program that run together on a device.

    Attributes:
        device: The device.
        program: The equations, as a program of `inputs` that gives `outputs`.
        inputs: What it takes of the program's inputs and of earlier stages.
        outputs: What later stages take, or the program returns.
        done: What nobody needs any more when it has run.
    """

    device: Device
    program: ClosedJaxpr
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    done: Sequence[Value]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Stages:
    """A program in stages.

    Attributes:
        stages: In their order.
        inputs: The program's inputs.
        results: What it returns.
        home: Where it is called.
    """

    stages: Sequence[Stage]
    inputs: Sequence[Value]
    results: Sequence[Value]
    home: Device


def cut(program: ClosedJaxpr, cells: Sequence[Device | None], home: Device) -> Stages | None:
    """Cut a program into stages.

    Args:
        program: The program; of cells, its last inputs.
        cells: On which device each cell's array stays; None if it goes with what computes it.
        home: Where the program is called.

    Returns:
        The stages, or None if all of it runs on `home`, as one program.
    """
    placed = {device for device in cells if device is not None}
    if placed <= {home} and not any(map(is_placed, program.jaxpr.eqns)):
        return None
    program = _opened(program)
    located = dict(zip(program.jaxpr.invars[len(program.jaxpr.invars) - len(cells) :], cells, strict=True))
    devices = _find_devices(program.jaxpr, located, home)
    placed.update(device for device in devices if device is not None)
    if placed <= {home}:
        return None
    others = home if len(placed) > 1 or not _is_like(home, *placed) else next(iter(placed))
    return _put_together(program, [device or others for device in devices], home)


def _is_like(home: Device, device: Device) -> bool:
    """Whether a program that is called at `home` may as well run on another device: not on the processor in place of an accelerator."""
    return home.platform in ("cpu", device.platform)


def _opened(program: ClosedJaxpr) -> ClosedJaxpr:
    """Return the program with the equations of those calls in its own place in which devices are named."""
    if not any(map(_names_devices, program.jaxpr.eqns)):
        return program
    # The types of 64 bits stay what they are.
    return jax.make_jaxpr(lambda *args: _run_open(program, args))(*program.in_avals)


def _names_devices(equation: Any) -> bool:
    return equation.primitive.name in _CALLS and any(map(is_placed, equation.params["jaxpr"].eqns))


def is_placed(equation: Any) -> bool:
    """Whether an operation, or one in what it calls, has the device of a scope."""
    # A function that JAX has traced for another program is not run again for this one: only its equations tell.
    return device_of(equation) is not None or _names_devices(equation)


def _run_open(program: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """Run a program, and calls in which devices are named one equation at a time."""
    jaxpr = program.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*program.consts, *args), strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else values[atom]
    for equation in jaxpr.eqns:
        inputs = list(map(read, equation.invars))
        if _names_devices(equation):
            inner = equation.params["jaxpr"]
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            with on_device(device_of(equation)):
                results = _run_open(closed, inputs)
        else:
            taken = _variables(equation.invars)
            alone = _part(jaxpr, [equation], taken, equation.outvars)
            results = jaxpr_as_fun(ClosedJaxpr(alone, ()))(*(values[variable] for variable in taken))
        values.update(zip(equation.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def _find_devices(jaxpr: Jaxpr, cells: Mapping[Value, Device | None], home: Device) -> list[Device | None]:
    """Return the device of each equation; None where nothing says one."""
    places: dict[Value, Device] = {variable: device for variable, device in cells.items() if device is not None}
    found: list[Device | None] = []
    for equation in jaxpr.eqns:
        taken = [variable for variable in _variables(equation.invars) if variable in places]
        device = device_of(equation) or _majority(taken, cells, places, home)
        found.append(device)
        if device is not None:
            places.update(dict.fromkeys(equation.outvars, device))
    return _join_users(jaxpr, found)


def _join_users(jaxpr: Jaxpr, devices: Sequence[Device | None]) -> list[Device | None]:
    """Return the devices, with those of the equations that have none but whose results are taken on one device alone, and not returned."""
    users: dict[Value, set[Device | None]] = {variable: {None} for variable in _variables(jaxpr.outvars)}
    found: list[Device | None] = []
    for equation, device in reversed(list(zip(jaxpr.eqns, devices, strict=True))):
        taking = set().union(*(users.get(variable, ()) for variable in equation.outvars))
        if device is None and len(taking) == 1 and not equation.effects:
            (device,) = taking
        found.append(device)
        for variable in _variables(equation.invars):
            users.setdefault(variable, set()).add(device)
    return found[::-1]


def _majority(
    taken: Sequence[Value], cells: Mapping[Value, Device | None], places: Mapping[Value, Device], home: Device
) -> Device | None:
    """Return where cells among the inputs of an equation lie, or else its inputs; where most bytes do, if they lie apart."""
    deciding = [variable for variable in taken if variable in cells]
    deciding = deciding or [variable for variable in taken if _is_like(home, places[variable])]
    sizes: collections.Counter[Device] = collections.Counter()
    for variable in deciding:
        sizes[places[variable]] += _size(variable.aval)
    return max(sizes, key=lambda device: sizes[device], default=None)


def _size(aval: Any) -> int:
    return 1 + getattr(aval, "size", 0) * getattr(getattr(aval, "dtype", None), "itemsize", 1)


def _put_together(program: ClosedJaxpr, devices: Sequence[Device], home: Device) -> Stages:
    """Return the stages, given each equation's device; as few as the order of the equations allows."""
    jaxpr = program.jaxpr
    groups = list(_groups(jaxpr, devices))
    needed = [set(_variables(atom for eqn in eqns for atom in eqn.invars)) for _, eqns in groups]
    results = set(_variables(jaxpr.outvars))
    consts = dict(zip(jaxpr.constvars, program.consts, strict=True))
    stages: list[Stage] = []
    later = results
    for (device, eqns), taken in reversed(list(zip(groups, needed, strict=True))):
        made = dict.fromkeys(variable for eqn in eqns for variable in eqn.outvars)
        outputs = [variable for variable in made if variable in later]
        inputs = [variable for variable in _in_order(taken, eqns) if variable not in made and variable not in consts]
        done = [variable for variable in inputs if variable not in later]
        stages.append(Stage(device, _closed(jaxpr, eqns, consts, inputs, outputs), inputs, outputs, done))
        later = later | taken
    stages.reverse()
    names: list[Value] = [object() if isinstance(atom, Literal) else atom for atom in jaxpr.outvars]
    given = {name: atom for name, atom in zip(names, jaxpr.outvars, strict=True) if name is not atom or atom in consts}
    if given:
        stages.append(Stage(home, _closed(jaxpr, [], consts, [], list(given.values())), [], list(given), []))
    return Stages(stages, jaxpr.invars, names, home)


def _groups(jaxpr: Jaxpr, devices: Sequence[Device]) -> Iterator[tuple[Device, list[Any]]]:
    """Yield devices with equations that can run there one after the other; those with effects stay in their order."""
    rest = list(zip(jaxpr.eqns, devices, strict=True))
    while rest:
        device, eqns, waiting = rest[0][1], [], []
        missing: set[Value] = set()
        must_wait = False
        for eqn, place in rest:
            is_ready = (
                place == device and missing.isdisjoint(_variables(eqn.invars)) and not (must_wait and eqn.effects)
            )
            if is_ready:
                eqns.append(eqn)
            else:
                waiting.append((eqn, place))
                missing.update(eqn.outvars)
                must_wait = must_wait or bool(eqn.effects)
        yield device, eqns
        rest = waiting


def _closed(
    jaxpr: Jaxpr, eqns: Sequence[Any], consts: Mapping[Value, Any], inputs: Sequence[Value], outputs: Sequence[Value]
) -> ClosedJaxpr:
    used = _in_order(consts.keys(), eqns, outputs)
    part = _part(jaxpr, eqns, inputs, outputs).replace(constvars=used)
    return ClosedJaxpr(part, [consts[variable] for variable in used])


def _part(jaxpr: Jaxpr, eqns: Sequence[Any], inputs: Sequence[Value], outputs: Sequence[Value]) -> Jaxpr:
    effects = set().union(*(eqn.effects for eqn in eqns))
    info = jaxpr.debug_info.with_unknown_names()
    return jaxpr.replace(
        constvars=[], invars=list(inputs), outvars=list(outputs), eqns=list(eqns), effects=effects, debug_info=info
    )


def _variables(atoms: Iterable[Any]) -> list[Value]:
    """Return the variables among the operands of equations, each once."""
    return list(dict.fromkeys(atom for atom in atoms if not isinstance(atom, Literal)))


def _in_order(wanted: Any, eqns: Sequence[Any], others: Iterable[Any] = ()) -> list[Value]:
    """Return those of `wanted` that equations take, in the order in which they do."""
    atoms = (*(atom for eqn in eqns for atom in eqn.invars), *others)
    return [variable for variable in _variables(atoms) if variable in wanted]
