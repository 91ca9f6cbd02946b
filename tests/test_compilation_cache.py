"""Compiled programs in files: whole, within limits, and only where the processor can load them."""

import errno
import os
import platform
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from tfdist_jax import _compilation_cache, _internals
from tfdist_jax._compilation_cache import OFF, VARIABLE, CompilationCache


@pytest.fixture
def probes(monkeypatch):
    """What trying to load a program says, and how often that was asked."""
    said = [""]

    def probe():
        said.append(said[0])
        return said[0]

    monkeypatch.setattr(_compilation_cache, "_probe", probe)
    return said


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr(_compilation_cache, "_LIMIT_BYTES", 1000)


@pytest.fixture(autouse=True)
def nothing_was_warned_of():
    _compilation_cache._warn_once.cache_clear()


def programs_in(folder):
    return sorted(path.name.removesuffix("-cache") for path in folder.glob("*/*-cache*"))


def test_what_is_put_is_there_for_other_processes(tmp_path, probes):
    CompilationCache(tmp_path / "new").put("jit_f-1", b"program")
    other = CompilationCache(tmp_path / "new")
    assert other.get("jit_f-1") == b"program"
    assert other.get("jit_f-2") is None


def test_only_the_user_may_write_where_programs_are(tmp_path, probes):
    cache = CompilationCache(tmp_path)
    cache.put("f", b"program")
    assert cache._folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("left", [b"", b"short", b"x" * 100])
def test_half_a_file_is_no_program_and_goes(tmp_path, probes, left):
    cache = CompilationCache(tmp_path)
    cache.put("f", b"program")
    cache._file("f").write_bytes(left)
    assert cache.get("f") is None
    assert programs_in(tmp_path) == []
    cache.put("f", b"program")
    assert cache.get("f") == b"program"


def test_a_long_name_is_shortened(tmp_path, probes):
    cache = CompilationCache(tmp_path)
    cache.put("jit_" + "f" * 300 + "-1", b"program")
    assert cache.get("jit_" + "f" * 300 + "-1") == b"program"


def test_the_least_recently_used_go_when_there_are_too_many(tmp_path, probes, limit):
    CompilationCache(tmp_path).put("f0", bytes(200))
    cache = CompilationCache(tmp_path)
    for i in (1, 2, 3):
        cache.put(f"f{i}", bytes(200))
    for i in range(4):
        os.utime(cache._file(f"f{i}"), (i, i))
    begun = cache._folder / "killed-cache.tmp"  # By a process that was killed.
    begun.write_bytes(b"half")
    os.utime(begun, (0, 0))
    assert cache.get("f0") is not None
    cache.put("f4", bytes(200))
    assert programs_in(tmp_path) == ["f0", "f2", "f3", "f4"]


def test_programs_of_other_versions_and_processors_go_first(tmp_path, probes, limit, monkeypatch):
    old = CompilationCache(tmp_path)
    old.put("old", bytes(800))
    os.utime(old._file("old"), (0, 0))
    monkeypatch.setattr(_compilation_cache, "_processor", lambda: "another one")
    cache = CompilationCache(tmp_path)
    assert cache._folder != old._folder
    assert cache.get("old") is None
    cache.put("new", bytes(500))
    assert programs_in(tmp_path) == ["new"]


def test_other_files_stay(tmp_path, probes, limit):
    for other in (tmp_path / "my-cache", tmp_path / "folder" / "my-cache"):
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(bytes(2000))
    CompilationCache(tmp_path).put("f", bytes(500))
    assert programs_in(tmp_path) == ["f", "my"]
    assert (tmp_path / "my-cache").exists()


def test_a_program_beyond_the_limit_is_not_kept(tmp_path, probes, limit):
    CompilationCache(tmp_path).put("f", bytes(1001))
    assert programs_in(tmp_path) == []


def test_the_users_own_limit_counts(tmp_path, probes, monkeypatch):
    import jax

    jax.config.update("jax_compilation_cache_max_size", 10)
    try:
        CompilationCache(tmp_path).put("f", bytes(11))
    finally:
        jax.config.update("jax_compilation_cache_max_size", -1)
    assert programs_in(tmp_path) == []


def test_a_folder_that_cannot_be_is_warned_of_once(tmp_path, probes, caplog):
    (tmp_path / "file").write_text("")
    for platform_is_probed in (True, False):
        cache = CompilationCache(tmp_path / "file", is_probed=platform_is_probed)
        for key in "fg":
            cache.put(key, b"program")
            assert cache.get(key) is None
    (warning,) = caplog.messages
    assert f"cannot be kept in {tmp_path / 'file'}: Not a directory" in warning
    assert "Name another folder by TFDIST_COMPILATION_CACHE or --compilation-cache, or say 'off' there" in warning


def test_a_full_disk_is_warned_of_once_and_keeps_nothing_half(tmp_path, probes, caplog, monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = CompilationCache(tmp_path)
    cache.put("before", b"program")
    monkeypatch.setattr(os, "replace", fail)
    cache.put("f", b"program")
    cache.put("g", b"program")
    assert programs_in(tmp_path) == ["before"]
    assert len(caplog.messages) == 1
    assert "No space left on device" in caplog.messages[0]


def test_a_folder_that_can_only_be_read_serves(tmp_path, probes, caplog, monkeypatch):
    def fail(*args):
        raise PermissionError

    cache = CompilationCache(tmp_path)
    cache.put("f", b"program")
    cache.get("f")
    monkeypatch.setattr(os, "utime", fail)
    assert CompilationCache(tmp_path).get("f") == b"program"
    assert caplog.messages == []


def test_loading_is_tried_once_and_only_when_there_is_something_to_load(tmp_path, probes):
    cache = CompilationCache(tmp_path)
    assert cache.get("f") is None
    cache.put("f", b"program")
    assert cache.find_problem() is None
    assert probes[1:] == []
    for one in (cache, cache, CompilationCache(tmp_path)):
        assert one.get("f") == b"program"
    assert probes[1:] == [""]
    assert cache.find_problem() == ""


def test_a_processor_that_cannot_load_its_own_programs_has_none(tmp_path, probes):
    probes[0] = "Machine type used for XLA:CPU compilation doesn't match the machine type for execution."
    cache = CompilationCache(tmp_path)
    cache.put("f", b"program")
    for one in (cache, cache, CompilationCache(tmp_path)):
        assert one.get("f") is None
    assert len(probes) == 2
    cache.put("g", b"program")
    assert programs_in(tmp_path) == ["f"]
    assert "Machine type" in cache.find_problem()


def test_accelerators_load_without_a_try(tmp_path, probes):
    probes[0] = "not on this processor"
    cache = CompilationCache(tmp_path, is_probed=False)
    cache.put("f", b"program")
    assert cache.get("f") == b"program"
    assert probes[1:] == []


def test_a_try_that_ends_without_an_answer_is_not_kept(tmp_path, monkeypatch, caplog):
    tries = []

    def probe():
        tries.append(1)
        raise subprocess.TimeoutExpired("python", 120)

    monkeypatch.setattr(_compilation_cache, "_probe", probe)
    cache = CompilationCache(tmp_path)
    cache.put("f", b"program")
    assert cache.get("f") is cache.get("f") is None
    assert len(tries) == len(caplog.messages) == 1
    assert cache.find_problem() is None


FOR_ANOTHER_PROCESSOR = """
from jax.experimental import serialize_executable
serialize = serialize_executable.serialize
def serialize_with_another_feature(compiled):
    program, *trees = serialize(compiled)
    assert b"+avx2" in program
    return program.replace(b"+avx2", b"+avx9"), *trees
serialize_executable.serialize = serialize_with_another_feature
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="The feature is one of x86.")
def test_xla_says_of_programs_for_another_processor_that_they_may_crash(monkeypatch):
    monkeypatch.setattr(_compilation_cache, "_PROBE", FOR_ANOTHER_PROCESSOR + _compilation_cache._PROBE)
    assert "avx9" in _compilation_cache._probe()


def test_a_program_that_is_killed_for_an_unknown_instruction_cannot_be_loaded(monkeypatch):
    monkeypatch.setattr(_compilation_cache, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert _compilation_cache._probe()


def test_another_end_of_the_try_is_no_answer(monkeypatch):
    monkeypatch.setattr(_compilation_cache, "_PROBE", "import sys; sys.exit('no JAX')")
    with pytest.raises(subprocess.SubprocessError, match="exit code 1: no JAX"):
        _compilation_cache._probe()


def test_the_folder_is_below_the_users_caches_unless_it_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _compilation_cache.find_folder() == tmp_path / ".cache/tfdist_jax/programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert _compilation_cache.find_folder() == Path("/caches/tfdist_jax/programs")
    monkeypatch.setenv(VARIABLE, "")
    assert _compilation_cache.find_folder() == Path("/caches/tfdist_jax/programs")
    monkeypatch.setenv(VARIABLE, "mine")
    assert _compilation_cache.find_folder() == Path.cwd() / "mine"
    monkeypatch.setenv(VARIABLE, OFF)
    assert _compilation_cache.find_folder() is None


def test_without_a_home_there_is_no_folder(monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(Path, "home", fail)
    assert _compilation_cache.find_folder() is None


@pytest.mark.parametrize(
    ("joined", "is_used"),
    [
        (None, True),
        (("10.0.0.1:1234", 1, 0), True),
        (("127.0.0.1:1234", 2, 1), False),
    ],
)
def test_gpus_of_several_processes_need_a_folder_that_the_user_names(monkeypatch, tmp_path, joined, is_used):
    found = []
    monkeypatch.setattr(_internals, "joined_processes", lambda: joined)
    monkeypatch.setattr(_internals, "replace_compilation_cache", found.append)
    monkeypatch.setattr(_internals, "write_compilation_cache_in_all_processes", lambda: None)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _compilation_cache.enable()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    _compilation_cache.enable()
    by_default, named = found
    assert (by_default("gpu") is not None) == is_used
    assert None not in (by_default("cpu"), by_default("tpu"), named("gpu"))


def send(x):
    return jax.lax.ppermute(x, "data", [(0, 1), (1, 0)])


def repeat(fn, x):
    return jax.lax.fori_loop(0, 3, lambda _, x: fn(x), x)


def choose(fn, x):
    return jax.lax.cond(x[0, 0] > 0, fn, jnp.sin, x)


@pytest.mark.parametrize(
    "communicate, loses_order",
    [
        (lambda x: x, False),
        (send, False),
        (lambda x: (send(x), jax.lax.psum(x, "data")), False),
        (lambda x: repeat(send, x), False),
        (lambda x: repeat(lambda x: send(jnp.sin(send(x))), x), False),
        (lambda x: (repeat(send, x), jax.lax.psum(x, "data")), True),
        (lambda x: (repeat(send, x), repeat(send, 2 * x)), True),
        (lambda x: repeat(lambda x: send(repeat(send, x)), x), True),
        (lambda x: (choose(send, x), send(x)), True),
        (lambda x: (choose(send, x), repeat(jnp.sin, x)), False),
    ],
)
def test_programs_with_collectives_in_several_computations_lose_their_order(communicate, loses_order):
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("data",))
    replicas = jax.shard_map(communicate, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    compiled = jax.jit(replicas).lower(jax.ShapeDtypeStruct((4, 4), "float32")).compile()
    assert _compilation_cache._loses_order(compiled.runtime_executable()) == loses_order


@pytest.mark.parametrize("cache", ["TFDIST_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR"])
def test_programs_that_lose_their_order_are_compiled_each_time(run_program, tmp_path, cache):
    program = """
        import jax, jax.numpy as jnp
        from jax import monitoring
        from jax.sharding import PartitionSpec as P
        loaded = []
        monitoring.register_event_listener(lambda event, **_: loaded.append(event) if event.endswith("cache_hits") else None)
        def unordered(x):
            return jax.lax.fori_loop(0, 3, lambda _, x: jax.lax.ppermute(x, "data", [(0, 1), (1, 0)]), x), jax.lax.psum(x, "data")
        def ordered(x):
            return jax.lax.psum(x, "data")
        for fn in (ordered, unordered):
            fn = jax.shard_map(fn, mesh=jax.sharding.Mesh(jax.devices(), ("data",)), in_specs=P("data"), out_specs=P(), check_vma=False)
            x = jax.ShapeDtypeStruct((4, 4), "float32")
            loaded.clear()
            jax.jit(fn).lower(x).compile()
            print(len(loaded))
    """
    env = {"TFDIST_COMPILATION_CACHE": "off", cache: str(tmp_path / "programs")}
    first = run_program(program, env=env)
    (kept,) = (tmp_path / "programs").rglob("jit_*-cache")
    assert kept.name.startswith("jit_ordered-")
    (kept.parent / "reload_problem").write_text("")  # Whatever processor this is.
    second = run_program(program, env=env)
    assert (first.stdout, second.stdout) == ("0\n0\n", "1\n0\n"), first.stderr + second.stderr
