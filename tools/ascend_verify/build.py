"""Compile a generated source with `host.h` and run it: `run(program, source, ...)`.

What enters: the C++ text for the chip, from either side. What leaves: what it wrote, and the trace
of each core. The text is used as it is but for two things that only the vendor's compiler knows:
numbers cast to pointers into a memory (`(__ubuf__ float *)1024`) become places in the host's
arrays, and the headers that it includes are ones of a line, which include `host.h`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

FP4 = np.dtype(ml_dtypes.float4_e2m1fn)
HERE = Path(__file__).parent
_VENDOR = (
    "acl/acl.h",
    "c_api/asc_simd.h",
    *(f"simt_api/asc_{name}.h" for name in ("simt", "fp16", "bf16", "fp8")),
    # Printing from the device, which no kernel here does.
    "tl_templates/ascend/debug.h",
)
_SPACES = {"ubuf": "UB", "cbuf": "L1", "ca": "L0A", "cb": "L0B", "cc": "L0C"}
_PLACE = re.compile(r"\(__(ubuf|cbuf|ca|cb|cc)__\s+([\w:]+)\s*\*\)\s*(\d+)\b")
_KINDS = {"__cube__": "CUBE", "__vector__": "VECTOR", "__mix__(1, 2)": "MIXED"}
_COMPILER = ("g++", "-std=c++20", "-O1", "-w", "-pthread")


def _placed(text: str) -> str:
    """The text with its addresses as places in the host's arrays."""
    return _PLACE.sub(lambda m: f"host_place<{m[2]}>({_SPACES[m[1]]}, {m[3]})", text)


def headers(folder: Path, templates: Path) -> Path:
    """The folder of headers that a source includes; `templates` holds those of the wheel."""
    for name in _VENDOR:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('#pragma once\n#include "host.h"\n')
    for path in templates.glob("tl_templates/ascend/*.h"):
        if path.name != "debug.h":
            (folder / "tl_templates" / "ascend" / path.name).write_text(_placed(path.read_text()))
    return folder


def _main(source: str, blocks: int) -> str:
    """The program around the kernel: it reads the tensors, launches, and writes them back."""
    kind = re.search(r"__global__ (__\w+__(?:\(1, 2\))?) void kernel_kernel\(([^)]*)\)", source)
    if kind is None:
        raise SystemExit("the source has no kernel of the expected form:\n" + source)
    types = [p.replace("__gm__", "").rsplit("*", 1)[0].strip() for p in kind[2].split(",")]
    passed = ", ".join(f"({t}*)tensors[{k}].data" for k, t in enumerate(types))
    loads = "\n".join(f'  load("{chr(65 + k)}", argv[{k + 1}]);' for k in range(len(types)))
    return f"""#include "host.h"
{_placed(source)}
int main(int, char **argv) {{
{loads}
  launch({blocks}, {_KINDS[kind[1]]}, [] {{ kernel_kernel({passed}); }});
  save(argv + 1);
}}
"""


def _stored(x: np.ndarray) -> bytes:
    """The bytes of a tensor; two elements of fp4 share one."""
    if x.dtype != FP4:
        return x.tobytes()
    codes = x.view(np.uint8).reshape(-1)
    return (codes[0::2] | codes[1::2] << 4).tobytes()


def _loaded(data: bytes, like: np.ndarray) -> np.ndarray:
    if like.dtype != FP4:
        return np.frombuffer(data, like.dtype).reshape(like.shape)
    pairs = np.frombuffer(data, np.uint8)
    return np.stack([pairs & 15, pairs >> 4], axis=-1).view(FP4).reshape(like.shape)


def run(
    program: Path, source: str, blocks: int, tensors: Sequence[np.ndarray], include: Path
) -> tuple[list[np.ndarray], list[str]]:
    """What a source makes of tensors, and the lines of its trace; `program` is the file to make."""
    program.parent.mkdir(parents=True, exist_ok=True)
    path = program.with_suffix(".cpp")
    path.write_text(_main(source, blocks))
    subprocess.run(
        [*_COMPILER, f"-I{include}", f"-I{HERE}", str(path), "-o", str(program)], check=True
    )
    files = [program.with_suffix(f".{k}") for k in range(len(tensors))]
    for file, tensor in zip(files, tensors, strict=True):
        file.write_bytes(_stored(tensor))
    done = subprocess.run(
        [str(program), *map(str, files)], check=False, capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr}")
    after = [_loaded(file.read_bytes(), t) for file, t in zip(files, tensors, strict=True)]
    return after, done.stdout.splitlines()
