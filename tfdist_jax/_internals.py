"""Every private JAX name this project uses, and one of Python's; nothing else may import `jax._src`.

`tests/test_internals.py` holds a contract test per name: a JAX release that drops or changes one
fails the test that carries its name.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - its own end is registered first, see `before_threads_end`.
import contextlib
import contextvars
import dataclasses
import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import (
    array as _array,
    cache_key as _cache_key,
    cloud_tpu_init as _cloud_tpu_init,
    clusters as _clusters,
    compilation_cache as _compilation_cache,
    compiler as _compiler,
    config as _config,
    core as _core,
    distributed as _distributed,
    mesh as _mesh,
    named_sharding as _named_sharding,
    pjit as _pjit,
    source_info_util as _source_info_util,
    util as _util,
    xla_bridge as _xla_bridge,
)
from jax._src.interpreters import mlir as _mlir, partial_eval as _partial_eval, pxla as _pxla
from jax.core import Tracer
from jax.extend.linear_util import StoreException, WrappedFun
from jaxlib import _jax  # type: ignore[attr-defined]

# What every JAX operation of a thread is handed to. The gradient tape is one more subclass.
Trace = _core.Trace

# The trace that computes at once: tells eager code from code inside a transformation.
EvalTrace = _core.EvalTrace

# The process's one EvalTrace: where a fresh thread starts and must end.
eval_trace = _core.eval_trace

# Context manager: runs a block on the given trace, then comes back to the one before.
set_current_trace = _core.set_current_trace


def current_trace() -> Trace:
    """The trace that this thread's next JAX operation goes to."""
    return _core.trace_ctx.trace


_read_trace: Any = _core.TracingContext.trace.fget


def takes_trace_away() -> bool:
    """Whether this JAX leaves a thread without a trace while it runs an operation."""
    with _core.take_current_trace():
        return _read_trace(_core.trace_ctx) is None


def restore_trace_after_interrupts() -> None:
    """Let operations work after an exception such as KeyboardInterrupt has left a thread without a trace.

    JAX 0.12 takes the trace away while it runs an operation, and an exception may come before it can put it back.
    """
    if not takes_trace_away():
        return

    def trace(self: Any) -> Trace:
        found = _read_trace(self)
        if found is None:
            self.set_trace(eval_trace)
        return found or eval_trace

    _core.TracingContext.trace = property(trace)  # pyright: ignore[reportAttributeAccessIssue]


def set_trace(trace: Trace) -> None:
    """Send this thread's JAX operations to `trace` until told otherwise."""
    _core.trace_ctx.set_trace(trace)


@functools.cache
def _thread_settings() -> list[Any]:
    """What tracing and JAX's blocks change for a thread: its trace, the axes and the mesh of the program around, settings."""
    modules = (_core, _config, _mesh)
    found = {
        id(each): each for module in modules for each in vars(module).values() if isinstance(each, _jax.config.Config)
    }
    return [*found.values()]


def note_thread_settings() -> Callable[[], None]:
    """Note what JAX has set for this thread; return what puts that back: an interrupt as a block of JAX's ends may come before it does."""
    before = [(each, each.get_local()) for each in _thread_settings()]
    resources, source = _mesh.thread_resources, _source_info_util._source_info_context
    env, stack, context = resources.env, [*resources.stack], source.context

    def put_back() -> None:
        for each, value in before:
            if each.get_local() is value:
                continue
            each.set_local(value)
            if tell := getattr(each, "_update_thread_local_hook", None):  # C++ has a copy of some.
                tell(None if value is _jax.config.unset else value)
        resources.env, resources.stack[:], source.context = env, stack, context

    return put_back


@contextlib.contextmanager
def releasing_failed_trace() -> Iterator[None]:
    """Let go of what the running trace holds if the block raises: JAX would keep arrays that it uses for ever."""
    trace = current_trace()
    try:
        yield
    except BaseException:
        if isinstance(trace, _partial_eval.DynamicJaxprTrace):
            trace.invalidate()
        raise


def trace_of(tracer: Tracer) -> Trace:
    """The trace that a traced array belongs to."""
    return tracer._trace


# The class of arrays that hold values; the facade gives it TensorFlow's methods before JAX has started.
ArrayImpl = _array.ArrayImpl


def replace_array(array: jax.Array, other: jax.Array) -> None:
    """Let an array, one that a program has taken, hold what another of its type and sharding holds."""
    array._replace_with(other)  # pyright: ignore[reportAttributeAccessIssue]


def released_from_device(array: jax.Array) -> jax.Array:
    """The same memory as an array that may meet arrays of other devices, as one does that no device was named for.

    JAX binds what a program has computed on a device to that one, and refuses to compute with arrays that are bound to different ones.
    """
    return ArrayImpl(array.aval, array.sharding, array._arrays, committed=False)  # type: ignore[attr-defined]


# Whether JAX has started, so that devices and memory settings are fixed. Asking does not start it.
backends_are_initialized = _xla_bridge.backends_are_initialized


def name_stack(equation: Any) -> str:
    """The names of the scopes that an equation was traced in, the outermost first, with the transformations that it has gone through."""
    return str(equation.source_info.name_stack)


def equation_of(tracer: Tracer) -> Any:
    """The equation that gives a traced array, in the program that is being traced; None for what is not one of its equations' results."""
    return getattr(tracer, "parent", None)


def is_computed(array: jax.Array) -> bool:
    """Whether an array is there on its devices, and has not been given away; without waiting for it."""
    return not array.is_deleted() and bool(getattr(array, "is_ready")())  # noqa: B009 - the public type leaves it out.


def has_run(fun: WrappedFun) -> bool:
    """Whether a flattened function, or rule of one, has been called and so knows the structure of its result."""
    try:
        return all(store.val is not None for store in fun.stores if store is not None)
    except StoreException:
        return False


def forget_run(fun: WrappedFun) -> None:
    """Undo what a call of a flattened function left: JAX wants either the function or its rule to have run."""
    for store in fun.stores:
        if store is not None:
            store.reset()


def computing_now() -> AbstractContextManager[None]:
    """Compute at once, also while a function is traced.

    Where none is, nothing has to change; JAX would else compute parts of compiled functions ahead and compile them in
    as constants, as big as the random numbers that these functions draw.
    """
    return contextlib.nullcontext() if current_trace() is eval_trace else jax.ensure_compile_time_eval()


def tracing_constants() -> AbstractContextManager[Any]:
    """Trace also what depends on no traced array, inside of `computing_now` too."""
    return _config.eager_constant_folding(False)


def known_value(
    array: Any,
    inputs: Sequence[tuple[Tracer, Any]] = (),
    read_cell: Callable[[int], Any] | None = None,
    replica: int | None = None,
) -> Any:
    """The value of a traced array that was computed from what is known, or None if it depends on anything else.

    Args:
        array: A traced array, or one that has a value.
        inputs: Traced arrays whose values are known.
        read_cell: Returns the value of the cell with a number, if the values of cells are known.
        replica: The number of the replica whose value is asked for, where replicas differ by their numbers; else it is not known.
    """
    if not isinstance(array, Tracer):
        return _as_array(array)
    known = {id(getattr(tracer, "val", tracer)): value for tracer, value in inputs}
    with jax.ensure_compile_time_eval():
        return _as_array(_Evaluation(known, read_cell, replica).evaluate(array))


def _as_array(value: Any) -> Any:
    """Return an array for a constant, which JAX keeps in classes of its own that lie nowhere; anything else as it is."""
    if not hasattr(value, "aval") or hasattr(value, "sharding"):
        return value
    return jnp.asarray(np.asarray(value, value.dtype), value.dtype)


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    known: dict[int, Any]
    read_cell: Callable[[int], Any] | None
    replica: int | None
    results: dict[int, Any] = dataclasses.field(default_factory=dict)

    def evaluate(self, tracer: Any) -> Any:
        lowered = tracer.full_lower() if isinstance(tracer, Tracer) else tracer
        if not isinstance(lowered, Tracer):
            return lowered
        equation = equation_of(lowered)
        if equation is None:
            return self._evaluate_leaf(lowered)
        if equation.primitive.name == "axis_index":
            return None if self.replica is None else np.int32(self.replica)
        if equation.effects:  # They must not happen twice.
            return None
        if id(equation) not in self.results:
            found = self._run(equation)
            if found is None:
                return None
            self.results[id(equation)] = found
        return self.results[id(equation)][list(equation.outvars).index(lowered.val)]

    def _evaluate_leaf(self, tracer: Any) -> Any:
        """Return the value of an input, or of what an inner trace has from the one around it."""
        atom = getattr(tracer, "val", tracer)
        if id(atom) in self.known:
            return self.known[id(atom)]
        trace = trace_of(tracer)
        constant = trace.get_const(tracer) if isinstance(trace, _partial_eval.DynamicJaxprTrace) else None
        return None if constant is None else self.evaluate(constant)

    def _run(self, equation: Any) -> Any:
        if equation.primitive.name == "read_cell":
            return None if self.read_cell is None else [self.read_cell(equation.params["index"])]
        arguments = [self.evaluate(argument) for argument in equation.in_tracers]
        if any(argument is None for argument in arguments):
            return None
        if "call_jaxpr" in equation.params:  # Custom derivatives are no plain operations.
            return _core.jaxpr_as_fun(equation.params["call_jaxpr"])(*arguments)
        found = equation.primitive.bind(*arguments, **equation.params)
        return found if equation.primitive.multiple_results else [found]


def replay(outputs: Sequence[Tracer], inputs: Sequence[Any]) -> Callable[..., list[Any]]:
    """Return how traced arrays were computed from others, traced or constant, as a function of these; the rest is constant."""
    equations: dict[int, Any] = {}
    stack = [(output, False) for output in outputs]
    seen = set(map(_identity, inputs))
    while stack:
        tracer, is_ready = stack.pop()
        equation = equation_of(tracer)
        if is_ready and equation is not None:
            equations.setdefault(id(equation), equation)
        elif equation is not None and _identity(tracer) not in seen:
            seen.add(_identity(tracer))
            stack += [(tracer, True), *((argument, False) for argument in equation.in_tracers)]

    def compute(*values: Any) -> list[Any]:
        known = {_identity(given): value for given, value in zip(inputs, values, strict=True)}
        find = lambda tracer: known.get(_identity(tracer), tracer)
        for equation in equations.values():
            if any(find(argument) is not argument for argument in equation.in_tracers):
                arguments = [find(argument) for argument in equation.in_tracers]
                params = equation.primitive.get_bind_params(equation.params)
                results = equation.primitive.bind(*arguments, **params)
                results = results if equation.primitive.multiple_results else [results]
                for variable, result in zip(equation.outvars, results, strict=True):
                    known.setdefault(id(variable), result)
        return [find(output) for output in outputs]

    return compute


def _identity(array: Any) -> int:
    """What tells apart the arrays of a program being traced, where one array may have several tracers."""
    referent = array.get_referent() if isinstance(array, Tracer) else array
    return id(getattr(referent, "val", referent) if isinstance(referent, Tracer) else referent)


def forget_calls(jitted: Any) -> None:
    """Let JAX look its programs for a jitted function up anew.

    It has no short way any more for calls like one that has failed; the programs themselves stay.
    """
    jitted._clear_cache()


def kept_calls() -> int:
    """Return for how many functions C++ keeps how to call their programs."""
    return sum(cache.size() for cache in _CALLS)


def forget_all_calls() -> None:
    """Let C++ ask Python again at the next call of each program; what is compiled is kept.

    It asks for good where once it got no executable, see `results_without_executable`.
    """
    for cache in _CALLS:
        cache.clear()


_CALLS = (_pjit._cpp_pjit_cache_fun_only, _pjit._cpp_pjit_cache_explicit_attributes)


def is_compiling(frame: FrameType) -> bool:
    """Whether a thread whose innermost frame this is waits for XLA's compiler."""
    return frame.f_globals.get("__name__") == _compiler.__name__


# JAX's caches call this between the moment at which they have an entry for a call and that at which its end is sure to be noted there.
_IN_CACHES = frozenset(code for code in _util._weakref_lru_cache.__code__.co_consts if isinstance(code, CodeType))


def breaks_by_exceptions(frame: FrameType | None) -> bool:
    """Whether an exception in this frame, as a signal's handler raises one, would go through a cache of JAX's and break it.

    The call that the cache is asked for would be taken for one that still runs: when this thread asks again, that is an error of a
    recursion, and other threads wait for ever.
    """
    while frame is not None:  # Also what it calls, as the handler that waits does itself.
        if frame.f_code in _IN_CACHES:
            return True
        frame = frame.f_back
    return False


def setting(name: str) -> Any:
    """The value of one of JAX's settings, of which the public type has few."""
    return getattr(jax.config, name)


def replace_compilation_cache(find: Callable[[str], Any]) -> None:
    """Let JAX keep compiled programs in what `find(platform)` returns, by `get(key)` and `put(key, value)`; in none if that is None.

    Where the user names a folder for JAX's own cache, before or afterwards, JAX uses that one.
    """
    find_own = _compilation_cache._get_cache

    def get_cache(backend: Any) -> Any:
        return find(backend.platform) if setting("jax_compilation_cache_dir") is None else find_own(backend)

    _compilation_cache._get_cache = get_cache


def write_compilation_cache_in_all_processes() -> None:
    """Let every process keep what it compiles, where the user has not named a folder for JAX's own cache.

    JAX's own is written by the first process alone, to spare remote folders; but on processors its keys differ between processes,
    so that all others would compile anew each time.
    """
    write_in_first = _compiler._cache_write

    def write(key: str, compile_s: float, name: str, backend: Any, executable: Any, *host_callbacks: Any) -> None:
        if (
            _distributed.global_state.process_id == 0
            or setting("jax_compilation_cache_dir") is not None
            or any(host_callbacks)
        ):
            write_in_first(key, compile_s, name, backend, executable, *host_callbacks)
        elif compile_s >= setting("jax_persistent_cache_min_compile_time_secs"):
            try:
                _compilation_cache.put_executable_and_time(key, name, executable, backend, int(compile_s))
            except jax.errors.JaxRuntimeError as error:
                warnings.warn(f"The compiled program {name!r} cannot be kept: {error}", stacklevel=2)

    _compiler._cache_write = write


def bypass_compilation_cache(is_bypassed: Callable[[str, Any], bool]) -> None:
    """Let JAX compile a program each time if `is_bypassed(platform, executable)`: no cache, JAX's own included, keeps or gives it."""
    get, put = _compilation_cache.get_executable_and_time, _compilation_cache.put_executable_and_time

    def get_others(key: str, compile_options: Any, backend: Any, *args: Any, **kwargs: Any) -> tuple[Any, int | None]:
        executable, compile_s = get(key, compile_options, backend, *args, **kwargs)
        if executable is None or is_bypassed(backend.platform, executable):
            return None, None
        return executable, compile_s

    def put_others(key: str, name: str, executable: Any, backend: Any, compile_s: int) -> None:
        if not is_bypassed(backend.platform, executable):
            put(key, name, executable, backend, compile_s)

    _compilation_cache.get_executable_and_time, _compilation_cache.put_executable_and_time = get_others, put_others


def lowering_rule(primitive: Any, platform: str) -> Callable[..., Any]:
    """Return the rule `(context, *operands, **params)` by which JAX lowers a primitive on a platform."""
    entry = _mlir._platform_specific_lowerings[platform].get(primitive) or _mlir._lowerings[primitive]
    return entry.rule


def scan_sizes(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many of a `scan` equation's operands are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()  # Since jax 0.12.
    return len(consts), len(carry)


def wrap_first_calls(call: Callable[..., Any]) -> Callable[[], None]:
    """Let `call(by_jax, *arguments, jaxpr=..., **options)` run each program of `jax.jit` that C++ has no executable of.

    Eager operations are such programs. `call` returns what `by_jax(*arguments, jaxpr=..., **options)` does, or what
    `results_without_executable` makes: then C++ asks again at the next call. What is returned undoes this.
    """
    by_jax = _pjit._pjit_call_impl_python

    def undo() -> None:
        _pjit._pjit_call_impl_python = by_jax

    _pjit._pjit_call_impl_python = functools.partial(call, by_jax)
    return undo


def results_without_executable(results: list[jax.Array]) -> tuple[list[jax.Array], None, None, list[Any]]:
    """Return a program's results in the form that `wrap_first_calls` wants."""
    return results, None, None, []


def has_plain_options(options: dict[str, Any]) -> bool:
    """Whether a program was made by `jax.jit(fn)`, without shardings, layouts, donation, a mesh or options of the compiler."""
    shardings = (*options["in_shardings"], *options["out_shardings"])
    layouts = (*options["in_layouts"], *options["out_layouts"])
    return (
        all(type(sharding) is _named_sharding.UnspecifiedValue for sharding in shardings)
        and all(layout is None for layout in layouts)
        and not any(options["donated_invars"])
        and not options["compiler_options_kvs"]
        and options["ctx_mesh"].empty
    )


def watches_calls() -> bool:
    """Whether JAX looks at what programs compute or measures them, or watches what travels, so that it must run them itself."""
    return any(getattr(_config, name).value not in (None, False, "allow") for name in _WATCHING)


_WATCHING = (
    *("debug_nans", "debug_infs", "enable_checks", "enable_pgle", "no_execution", "distributed_debug"),
    *("transfer_guard_host_to_device", "transfer_guard_device_to_host"),
)


def make_array(aval: Any, value: np.ndarray, device: Any, is_bound: bool) -> jax.Array:
    """Return an array of the type `aval`, also a weak one, which may share the memory of `value`."""
    sharding = jax.sharding.SingleDeviceSharding(device)
    # Otherwise 64 bits are taken for 32.
    with jax.enable_x64(True) if aval.dtype.itemsize == 8 else contextlib.nullcontext():
        return _pxla.batched_device_put(aval, sharding, [value], [device], is_bound)


def default_device() -> Any:
    """The device on which arrays are made that are bound to none; None if the program has set a platform in place of one."""
    chosen = setting("jax_default_device")
    if chosen is None:
        return jax.local_devices()[0]
    return chosen if isinstance(chosen, jax.Device) else None


def copy_to_device(value: np.ndarray) -> jax.Array | None:
    """Return a copy on the default device, of the same type, in a fraction of `jnp.array`'s time; None where that is not plain."""
    device = default_device()
    if device is None or value.dtype.kind not in "biuf" or not jax.sharding.get_abstract_mesh().empty:
        return None
    return make_array(_array_type(value.shape, value.dtype), value.copy(), device, False)


@functools.lru_cache(4096)
def _array_type(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return _core.ShapedArray(shape, dtype)


def detect_processes(timeout_s: int) -> tuple[str, str, int, int, Sequence[int] | None] | None:
    """What the environment says about the processes of this program, or None: Slurm, Open MPI, Kubernetes, Cloud TPU.

    Returns:
        The name of what was found, the first process's address, the number of processes, this one's and its devices.
    """
    environments = _clusters.ClusterEnv._cluster_types
    found = next((env for env in environments if not env.opt_in_only_method and env.is_env_present()), None)
    if found is None:
        return None
    port = os.environ.get("JAX_COORDINATOR_PORT")
    address = found.get_coordinator_address(timeout_secs=timeout_s, override_coordinator_port=port)
    device = None if _cloud_tpu_init.running_in_cloud_tpu_vm else found.get_local_process_id()
    return (
        found.__name__,
        address,
        found.get_process_count(),
        found.get_process_id(),
        None if device is None else [device],
    )


def joined_processes() -> tuple[str, int, int] | None:
    """The first process's address, the number of processes and this one's, or None before `jax.distributed.initialize`."""
    state = _distributed.global_state
    return None if state.client is None else (str(state.coordinator_address), state.num_processes, state.process_id)


def around_cpu_client(enter: Callable[[], AbstractContextManager[None]]) -> None:
    """Make JAX's client for the processor within a context: the client reads the environment, and JAX's settings are known then."""
    registered = _xla_bridge._backend_factories["cpu"]
    make: Callable[..., Any] = registered.factory

    def make_client(*collectives: Any) -> Any:
        with enter():
            return make(*collectives)

    _xla_bridge._backend_factories["cpu"] = dataclasses.replace(registered, factory=make_client)


@contextlib.contextmanager
def xla_flag(flag: str) -> Iterator[None]:
    """Let XLA read a flag besides those of XLA_FLAGS; kept programs are found again with the same flag only.

    It leaves the environment at the end: programs that are started may have an XLA that does not know it, which ends the process then.
    Without effect once XLA has read its flags, and where XLA_FLAGS names a file.
    """
    own = os.environ.get("XLA_FLAGS", "")
    if own.strip() and not own.strip().startswith("-"):
        yield
        return
    with environment_variable("XLA_FLAGS", f"{own} {flag}".strip()):
        _jax.CompileOptions()  # Reads them.
        yield
    key_of_others = _cache_key.custom_hook
    if flag not in key_of_others():  # A client may be made again, after `clear_backends`.
        _cache_key.custom_hook = lambda: f"{key_of_others()} {flag}"


@contextlib.contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for a while."""
    own = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if own is None:
            del os.environ[name]
        else:
            os.environ[name] = own


def listen_for_collectives_on(address: str) -> None:
    """Let collectives between processors listen on one of this machine's addresses, in numbers; Gloo asks for the machine's name."""
    registered = _xla_bridge._backend_factories["cpu"]
    make: Callable[..., Any] = registered.factory

    def make_client() -> Any:
        client = _distributed.global_state.client
        if client is None or setting("jax_cpu_collectives_implementation") != "gloo":
            return make()
        collectives = _jax.make_gloo_tcp_collectives(distributed_client=client, hostname=address)
        return make(collectives)

    _xla_bridge._backend_factories["cpu"] = dataclasses.replace(registered, factory=make_client)


def key_value_client() -> Any:
    """What reads and writes the strings that the processes share; None before `jax.distributed.initialize`."""
    return _distributed.global_state.client


def before_threads_end(fn: Callable[[], object]) -> None:
    """Call `fn` when the program has ended and before pools of threads are closed; `atexit` is later than that.

    What is registered last is called first, and the pools are here already.
    """
    threading._register_atexit(fn)  # type: ignore[attr-defined]


def let_asyncio_end_without_threads() -> None:
    """Let `asyncio.to_thread` do without, once the program has ended: from Python 3.12 on, no thread can be started then."""
    asyncio.to_thread = _to_thread_if_one_can_start


async def _to_thread_if_one_can_start(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    call = functools.partial(contextvars.copy_context().run, func, *args, **kwargs)
    try:
        result = asyncio.get_running_loop().run_in_executor(None, call)
    except RuntimeError:  # Of the pool; what `func` raises comes below.
        return func(*args, **kwargs)
    return await result


def make_cpu_client(num_devices: int) -> Any:
    """Return a client of its own with as many virtual CPU devices, for which programs can be compiled beside JAX's."""
    return _jax.get_tfrt_cpu_client(asynchronous=True, num_devices=num_devices)
