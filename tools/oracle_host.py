"""Records every kernel that programs ask to be compiled, and compiles none; see oracle.py.

What enters: on the command line, which package is installed here (`upstream` or `own`) and a limit
in seconds of processor time; on the standard input, one program a line: its path, a chip, `fake` or
`real`, and the file to write, with tabs between. What leaves: in that file, one line of JSON for
each kernel in the order in which the program asks for them, and a last one that says how it ended.

A program runs as its author wrote it, in a process of its own, with stand-ins: a kernel returns
tensors of zeros, a comparison of results holds, a benchmark calls its function once and says 1 ms,
a search takes its first configuration. With `fake`, tensors have shapes and no contents, so that
no size is too large, and the value of an element is made up; with `real`, the sizes that a program
offers are lowered (`sizes.py`).
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import torch
from gpuless import (
    CudaIsCpu,
    NoAsserts,
    accept_all,
    capability,
    pretend_gpu,
    processors,
    silence_triton,
)
from sizes import lower_main, lower_options
from torch._subclasses.fake_tensor import FakeTensorMode

MEMORY = 10 << 30
# A program that uses no processor time ends after this many times its limit.
WALL = 6
# The value of an integer element of a tensor that has no contents; a length, mostly.
ITEM = 128


class Shapes(FakeTensorMode):
    """Tensors without contents; a program that asks for one element gets `ITEM`, 1.0 or True."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation of torch on shapes."""
        if func is torch.ops.aten._local_scalar_dense.default:
            dtype = args[0].dtype
            return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else ITEM
        return super().__torch_dispatch__(func, types, args, kwargs)


class Nothing:
    """Stands for the result of a measurement: any attribute, call or item of it is 1.0."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> float:
        """The result of a measurement."""
        return 1.0


class Stand:
    """Stands for a compiled kernel: a call gives zeros in place of its outputs."""

    def __init__(self, form: Any, func: Any, outputs: list[int]) -> None:
        self.form, self.prim_func, self.outputs = form, func, outputs
        self.out_idx = outputs
        self.config: dict[str, Any] = {}
        self.latency = self.ref_latency = 1.0
        self.params = form[2]
        self.kernel = self.func = self

    def __call__(self, *args: Any, **_: Any) -> Any:
        """Zeros for the outputs: one tensor, a list of several, None for none."""
        known = self._sizes(args)
        made: list[Any] = []
        for n in self.outputs:
            dtype, shape = self.form[2][n][2:4]
            size = [known.get(str(e), 1) if e[0] != "const" else int(e[2]) for e in shape]
            made.append(torch.zeros(size, dtype=_torch(dtype)))
        return None if not made else made[0] if len(made) == 1 else made

    def _sizes(self, args: Any) -> dict[str, int]:
        """Symbolic sizes by their form, from the tensors of a call."""
        known: dict[str, int] = {}
        inputs = [p for n, p in enumerate(self.form[2]) if n not in self.outputs]
        if len(args) == len(self.form[2]):
            inputs = self.form[2]
        for p, value in zip(inputs, args, strict=False):
            if p[0] == "buffer" and hasattr(value, "shape"):
                known |= {str(e): int(n) for e, n in zip(p[3], value.shape, strict=False)}
        return known

    def get_profiler(self, *_: Any, **__: Any) -> Nothing:
        """A profiler that measures nothing."""
        return Nothing()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: ""


def _torch(dtype: str) -> Any:
    narrow = {
        "float8_e5m2": "float8_e5m2",
        "float4_e2m1fn": "int8",
        "int4": "int8",
        "uint4": "uint8",
    }
    name = narrow.get(dtype, dtype)
    return getattr(torch, name if hasattr(torch, name) else "int8")


class Recorder:
    """Takes the place of `tilelang.compile`."""

    def __init__(self, translate: Any, outputs: Any, out: Path) -> None:
        self.translate, self.outputs, self.out = translate, outputs, out

    def compile(self, func: Any = None, out_idx: Any = None, *_: Any, **__: Any) -> Stand:
        """Record a function; gives what stands for its kernel."""
        form = self.translate(func)
        with self.out.open("a", encoding="utf-8") as f:
            f.write(json.dumps(form) + "\n")
        count = len(form[2])
        given = self.outputs(func) if out_idx is None else out_idx
        listed = list(given) if isinstance(given, (list, tuple, range)) else [given]
        return Stand(form, func, [int(n) % count for n in listed])


class AutoTuned:
    """Stands for a function under `autotune`: a call takes the first configuration."""

    def __init__(self, func: Any, configs: Any) -> None:
        self.func, self.configs = func, configs

    def _with(self, args: Any, kwargs: Any) -> dict[str, Any]:
        made: Any = self.configs
        listed: Any = made(*args, **kwargs) if callable(made) else made
        first = dict(next(iter(listed)))
        names = list(self.func.signature.parameters)[: len(args)]
        return {**{k: v for k, v in first.items() if k not in names}, **kwargs}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives with the first configuration."""
        kwargs.pop("__return_kernel", None)
        return self.func(*args, **self._with(args, kwargs))

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel of the first configuration."""
        return self.func.compile(*args, **self._with(args, kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.func, name)


class Tuner:
    """Stands for `AutoTuner`."""

    def __init__(self, kernel: Any, configs: Any) -> None:
        self.made = kernel, configs

    @classmethod
    def from_kernel(cls, kernel: Any, configs: Any, *_: Any, **__: Any) -> Tuner:
        """The tuner of a function."""
        return cls(kernel, configs)

    def set_compile_args(self, *_: Any, **__: Any) -> Tuner:
        """Change nothing."""
        return self

    set_profile_args = set_compile_args

    def run(self, *_: Any, **__: Any) -> Any:
        """The kernel of the first configuration."""
        kernel, configs = self.made
        made = kernel(**dict(next(iter(configs))))
        return made if isinstance(made, Stand) else sys.modules["tilelang"].compile(made)  # pyright: ignore[reportAttributeAccessIssue]


def autotune(func: Any = None, configs: Any = None, **_: Any) -> Any:
    """Stands for `tilelang.autotune`."""
    if func is not None and configs is None:
        return AutoTuned(func, [{}])
    return lambda f: AutoTuned(f, configs)


def bench(fn: Any, *_: Any, **given: Any) -> Any:
    """Stands for `do_bench`."""
    fn()
    return [1.0] * len(given["quantiles"]) if given.get("quantiles") else 1.0


def install(side: str, chip: str, out: Path) -> None:
    """Put the stand-ins in the place of what compiles, compares and measures."""
    cuda = json.dumps({"kind": "cuda", "arch": chip})
    os.environ["TILELANG_DEFAULT_TARGET"] = f"emulate:{chip}" if side == "own" else cuda
    import tilelang

    if side == "own":
        import oracle_own as translator

        from tilelang.compat import devices

        devices.MODEL = f"emulate:{chip}"
        driver = importlib.import_module("tilelang.carver.arch.driver")
        driver.get_num_sms = lambda device_id=0: processors(chip)  # pyright: ignore[reportAttributeAccessIssue]
        homes = ["tilelang", "tilelang.runtime", "tilelang.runtime.jit", "tilelang.compat"]
        recorder = Recorder(translator.function, lambda f: list(f.ir.outputs), out)
    else:
        import oracle_upstream as translator

        homes = ["tilelang", "tilelang.jit"]
        nvcc: Any = importlib.import_module("tilelang.contrib.nvcc")
        nvcc.get_target_compute_version = lambda *_: ".".join(map(str, capability(chip)))
        recorder = Recorder(translator.function, _upstream_outputs, out)
    for name in homes:
        __import__(name)
        setattr(sys.modules[name], "compile", recorder.compile)  # noqa: B010 - untyped
    par = _parallel(recorder)
    replaced = {"par_compile": par, "autotune": autotune, "AutoTuner": Tuner, "do_bench": bench}
    for name in ("tilelang", "tilelang.jit", "tilelang.autotuner", "tilelang.profiler"):
        with contextlib.suppress(ImportError):
            __import__(name)
        module = sys.modules.get(name)
        for key, value in replaced.items():
            if module is not None and hasattr(module, key):
                setattr(module, key, value)
    silence_triton()
    accept_all()
    del tilelang


def _upstream_outputs(func: Any) -> list[int]:
    attrs = func.attrs
    return list(attrs["tilelang_out_idx"]) if attrs and "tilelang_out_idx" in attrs else []


def _parallel(recorder: Recorder) -> Any:
    def par_compile(funcs: Any, *_: Any, out_idx: Any = None, **__: Any) -> list[Stand]:
        return [recorder.compile(f, out_idx) for f in funcs]

    return par_compile


def execute(path: str, *, small: bool) -> str:
    """Run the main part of a file, or every test of a file of tests; how that ended."""
    tests = os.path.basename(path).startswith("test_")
    name = "program" if tests else "__main__"
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    if small:
        lower_main(tree)
        lower_options([])
    tree = ast.fix_missing_locations(NoAsserts().visit(tree))
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(compile(tree, path, "exec", dont_inherit=True), module.__dict__)
    ends: list[str] = []
    for key, test in list(module.__dict__.items()) if tests else []:
        if key.startswith("test_") and callable(test):
            try:
                test()
            except BaseException as exc:
                ends.append(f"{key}: {type(exc).__name__}: {exc}")
    return "; ".join(ends) or "ended"


def run(side: str, path: str, chip: str, how: str, out: Path) -> str:
    """Run one program, in this process; how it ended."""
    os.chdir(os.path.dirname(path))
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    pretend_gpu(capability(chip))
    install(side, chip, out)
    with contextlib.ExitStack() as stack:
        if how == "fake":
            stack.enter_context(Shapes())
        stack.enter_context(CudaIsCpu())
        try:
            return execute(path, small=how == "real")
        except BaseException as exc:
            if os.environ.get("CONFORMANCE_TRACE"):
                import traceback

                traceback.print_exc()
            return f"{type(exc).__name__}: {exc}"


def child(side: str, seconds: int, path: str, chip: str, how: str, out: Path) -> None:
    """Run one program within its limits, and say how it ended in the last line of its file."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    signal.alarm(WALL * seconds)
    if not os.environ.get("CONFORMANCE_TRACE"):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    line = run(side, path, chip, how, out)
    with out.open("a", encoding="utf-8") as f:
        f.write(json.dumps({"ended": " ".join(line.split())[:300]}) + "\n")


def main() -> None:
    """Run the programs of the standard input, one after the other."""
    side, seconds = sys.argv[1], int(sys.argv[2])
    warnings.filterwarnings("ignore")
    for name in ("tilelang", "tilelang.language", f"oracle_{side}"):
        importlib.import_module(name)
    with Shapes(), CudaIsCpu():  # what torch imports for it at first use, imported once
        x = torch.randn(4, 4, device="cuda", dtype=torch.float16)
        torch.softmax((x @ x.T).float(), dim=-1).sum()
    for name in ("einops", "triton"):  # what many programs import, where it is installed
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        path, chip, how, out = line.rstrip("\n").split("\t")
        process = os.fork()
        if process == 0:
            child(side, seconds, path, chip, how, Path(out))
            os._exit(0)
        _, status, used = os.wait4(process, 0)
        if os.WIFSIGNALED(status):
            timed = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
            ended = f"more than {seconds} s" if timed else f"signal {os.WTERMSIG(status)}"
            with Path(out).open("a", encoding="utf-8") as f:
                f.write(json.dumps({"ended": ended}) + "\n")
        print(f"{used.ru_utime + used.ru_stime:6.1f} s  {path}", flush=True)


if __name__ == "__main__":
    main()
