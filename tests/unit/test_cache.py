"""The folder of compiled kernels: what is whole comes back, what is not is made again; keys tell
apart what the compiler would make differently.
"""

import json
import os
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest

import tilelang.language as T
from tilelang.options import Options, options_from
from tilelang.runtime import cache, identity
from tilelang.runtime.cache import Entry, Store, pack, unpack

KEY = "ab" * 32
ENTRY = Entry({"kernel": "k", "numbers": [1, 2.5, None], "text": "ä"}, {"code": b"\0\1", "x": b""})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


@pytest.fixture(autouse=True)
def warned(monkeypatch):
    """Each test is a process that has not warned of any folder."""
    monkeypatch.setattr(cache, "_warned", set())


# ---- Entries -------------------------------------------------------------------------------------


def test_an_entry_comes_back(store):
    assert store.get(KEY) is None
    assert store.put(KEY, ENTRY)
    assert store.get(KEY) == ENTRY
    assert Store(store.folder.parent).get(KEY) == ENTRY
    assert store.get("cd" * 32) is None


def test_an_entry_can_be_replaced(store):
    store.put(KEY, ENTRY)
    store.put(KEY, Entry({}, {"code": b"new"}))
    assert store.get(KEY) == Entry({}, {"code": b"new"})
    assert len(store.entries()) == 1


def test_each_truncation_and_each_changed_byte_is_noticed():
    whole = pack(KEY, ENTRY)
    assert unpack(KEY, whole) == ENTRY
    for n in range(len(whole)):
        assert unpack(KEY, whole[:n]) is None
        assert unpack(KEY, whole[:n] + bytes([whole[n] ^ 4]) + whole[n + 1 :]) is None
    assert unpack(KEY, whole + b"\0") is None
    assert unpack("cd" * 32, whole) is None


@pytest.mark.parametrize(
    "content", [b"", b"TWCACHE1", b"\0" * 4096, json.dumps({"code": "x"}).encode()]
)
def test_what_is_no_entry_is_made_again(store, content):
    store.put(KEY, ENTRY)
    store.path(KEY).write_bytes(content)
    assert store.get(KEY) is None
    assert store.put(KEY, ENTRY)
    assert store.get(KEY) == ENTRY


def test_an_entry_under_another_name_is_none(store):
    store.put(KEY, ENTRY)
    other = "cd" * 32
    os.rename(store.path(KEY), store.path(other))
    assert store.get(other) is None


def test_only_the_owner_can_write_the_folder(store):
    store.put(KEY, ENTRY)
    assert store.folder.stat().st_mode & 0o077 == 0
    assert store.path(KEY).stat().st_mode & 0o077 == 0


def test_nothing_but_the_entry_is_left(store):
    store.put(KEY, ENTRY)
    assert [each.name for each in store.folder.iterdir()] == [store.path(KEY).name]


# ---- A folder that cannot be used ----------------------------------------------------------------


def test_a_file_in_the_place_of_the_folder_is_a_warning_once(tmp_path):
    (tmp_path / "cache").write_text("")
    store = Store(tmp_path / "cache")
    with pytest.warns(RuntimeWarning, match="TILELANG_CACHE_DIR") as caught:
        assert not store.put(KEY, ENTRY)
        assert not store.put("cd" * 32, ENTRY)
        assert not Store(tmp_path / "cache").put(KEY, ENTRY)
    assert len(caught) == 1
    assert str(store.folder) in str(caught[0].message)
    assert store.get(KEY) is None
    assert store.entries() == []


def test_a_full_folder_is_a_warning_and_leaves_nothing(store, monkeypatch):
    def full(path, data):
        path.write_bytes(data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert not store.put(KEY, ENTRY)
    assert list(store.folder.iterdir()) == []


def test_an_entry_that_is_a_folder_is_a_warning(store):
    (store.path(KEY) / "inner").mkdir(parents=True)
    assert store.get(KEY) is None
    with pytest.warns(RuntimeWarning):
        assert not store.put(KEY, ENTRY)


# ---- Growth --------------------------------------------------------------------------------------


def keys(count):
    return [f"{n:064x}" for n in range(1, count + 1)]


def test_the_folder_stays_below_its_limit(tmp_path):
    store = Store(tmp_path, limit=10_000)
    for n, key in enumerate(keys(40)):
        store.put(key, Entry({}, {"code": bytes(500)}))
        os.utime(store.path(key), (n, n))
        assert sum(each.size for each in store.entries()) <= 10_000
    assert store.get(keys(40)[-1]) is not None
    assert store.get(keys(40)[0]) is None


def test_what_was_used_last_stays(tmp_path):
    store = Store(tmp_path, limit=10_000)
    for n, key in enumerate(keys(12)):
        store.put(key, Entry({}, {"code": bytes(600)}))
        os.utime(store.path(key), (n, n))
    assert store.get(keys(12)[0]) is not None
    Store(tmp_path, limit=2_000).shrink()
    assert [each.path for each in store.entries()][-1] == store.path(keys(12)[0])
    assert len(store.entries()) < 12


def test_one_put_in_sixteen_looks_at_the_size(tmp_path):
    store = Store(tmp_path, limit=0)
    store.put("1" * 64, ENTRY)
    assert len(store.entries()) == 1
    store.put("0" * 64, ENTRY)
    assert store.entries() == []


def test_what_a_dead_writer_left_is_removed_when_it_is_old(store):
    store.put(KEY, ENTRY)
    old, new = store.folder / "a.1.ff.tmp", store.folder / "b.2.ff.tmp"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    store.shrink()
    assert new.exists()
    assert not old.exists()
    assert store.get(KEY) == ENTRY


def test_clear_removes_entries_and_nothing_else(store):
    store.put(KEY, ENTRY)
    (store.folder / "notes.txt").write_text("mine")
    (store.folder / "a.1.ff.tmp").write_bytes(b"x")
    assert store.clear() == 1
    assert [each.name for each in store.folder.iterdir()] == ["notes.txt"]
    assert Store(store.folder / "absent").clear() == 0


# ---- Several processes ---------------------------------------------------------------------------

WORKERS = """
import multiprocessing, sys, warnings
from pathlib import Path
from tilelang.runtime.cache import Entry, Store


def entry(n):
    return Entry({"n": n}, {"code": bytes([n % 256]) * (1000 + n)})


def work(me):
    warnings.simplefilter("error")
    store = Store(Path(sys.argv[1]), limit=60_000)
    for turn in range(300):
        n = (turn * 7 + me * turn) % 40
        key = f"{n * 0x0123456789ABCDEF % (1 << 64):016x}" * 4
        found = store.get(key)
        if found is None:
            assert store.put(key, entry(n))
        else:
            assert found == entry(n), n
        if me == 0 and turn % 3 == 0:  # one of them damages what the others read
            try:
                with store.path(key).open("r+b") as file:
                    file.seek(turn % 1000)
                    file.write(b"damage")
            except FileNotFoundError:  # another one has made room
                pass


processes = [multiprocessing.get_context("fork").Process(target=work, args=[n]) for n in range(8)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(sum(process.exitcode != 0 for process in processes))
"""


def test_eight_processes_share_a_folder_while_entries_are_damaged_and_removed(tmp_path):
    """Entries are written, damaged and removed all the time: what is read is always right."""
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    env = {**os.environ, "PYTHONPATH": str(Path(identity.__file__).parents[2])}
    command = [sys.executable, script, tmp_path / "cache"]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    left = [each.name for each in Store(tmp_path / "cache").folder.iterdir()]
    assert left
    assert not [name for name in left if name.endswith(".tmp")]


# ---- Keys ----------------------------------------------------------------------------------------


def scaled(n=128, factor=2.0, name="k"):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * factor

    return kernel.ir


def key_of(fn, target="cpu", machine=("avx2",), options=None):
    return identity.key(fn, target, machine, options or Options())


def test_equal_programs_have_equal_keys():
    assert key_of(scaled()) == key_of(scaled())
    assert len(key_of(scaled())) == 64


@pytest.mark.parametrize(
    "other",
    [
        lambda: key_of(scaled(129)),
        lambda: key_of(scaled(factor=2.5)),
        lambda: key_of(scaled(factor=-2.0)),
        lambda: key_of(scaled(), target="cuda"),
        lambda: key_of(scaled(), machine=("avx512f",)),
        lambda: key_of(scaled(), machine=("av", "x2")),
        lambda: key_of(scaled(), options=options_from({"tl.enable_fast_math": True})),
        lambda: key_of(scaled(), options=options_from({"tl.disable_safe_memory_legalize": True})),
    ],
)
def test_what_makes_other_code_has_another_key(other):
    assert other() != key_of(scaled())


@pytest.mark.parametrize(
    "options",
    [
        options_from({"tl.pass_profile": True, "tl.disable_data_race_check": True}),
        options_from(None, {"TILELANG_CACHE_DIR": "x", "TILELANG_VERBOSE": "1"}),
    ],
)
def test_what_changes_no_code_has_the_same_key(options):
    assert key_of(scaled(), options=options) == key_of(scaled())


def test_a_program_at_another_line_has_another_key():
    """Its assertions name other lines."""
    text = textwrap.dedent("""
        import tilelang.language as T

        @T.prim_func
        def kernel(X: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=64) as bx:
                for i in T.Parallel(64):
                    X[i] = X[i] + 1.0
        """)
    moved = text.replace("    with T.Kernel", "    # a remark\n    with T.Kernel")
    shifted = text.replace("in T.Parallel", "in  T.Parallel")
    found = {}
    for n, source in enumerate([text, text, moved, shifted]):
        found[n] = key_of(from_source(source))
    assert found[0] == found[1]
    assert len(set(found.values())) == 3


def from_source(text):
    import linecache

    name = "<cache test>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {}
    exec(compile(text, name, "exec"), scope)
    return scope["kernel"].ir


# ---- The compiler's own version ------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package in place of ours, older than the process."""
    (tmp_path / "inner").mkdir()
    files = [tmp_path / "a.py", tmp_path / "inner" / "b.py"]
    for path in files:
        path.write_text("x = 1\n")
    monkeypatch.setattr(identity, "_PACKAGE", tmp_path)
    monkeypatch.setattr(identity, "_STARTED", time.time_ns() + 10**10)
    return files


def stamp():
    return identity.compiler.__wrapped__()


def test_the_compiler_is_the_same_until_a_file_of_it_changes(package):
    before = stamp()
    assert stamp() == before
    package[1].write_text("x = 2\n")
    changed = stamp()
    assert changed != before
    package[1].unlink()
    gone = stamp()
    assert gone not in (before, changed)
    (package[0].parent / "notes.txt").write_text("not of the compiler")
    (package[0].parent / "__pycache__").mkdir()
    (package[0].parent / "__pycache__" / "c.py").write_text("")
    assert stamp() == gone


def test_a_compiler_that_changed_under_a_running_process_is_like_no_other(package, monkeypatch):
    monkeypatch.setattr(identity, "_STARTED", time.time_ns() - 10**9)
    os.utime(package[0], (0, 0))
    first, second = stamp(), stamp()
    assert first != second


def test_the_version_is_in_the_stamp(package):
    from tilelang import __version__

    assert stamp().startswith(__version__)


def test_nothing_is_said_where_all_is_well(store):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(KEY, ENTRY)
        store.get(KEY)
