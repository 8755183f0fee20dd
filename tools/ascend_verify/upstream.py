"""Write the sources that the `tilelang` wheel generates: `upstream.py FOLDER KERNELS`.

What enters: the kernels of `kernels.py`. What leaves: FOLDER/<kernel>.cpp for each, and the last
line of output, which says where the wheel keeps the headers that the sources include. With the
device compile off, the generator needs neither a device nor the vendor's compiler.
"""

# This file runs in another environment than the rest: the types of its imports are unknown here.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportCallIssue=false

import sys
from pathlib import Path

from kernels import CASES

import tilelang
from tilelang import tvm


def main() -> None:
    """Generate each kernel's source."""
    folder = Path(sys.argv[1])
    target = tvm.target.Target({"kind": "ascend"})
    for case in CASES:
        if case.name not in sys.argv[2:]:
            continue
        with target, tvm.transform.PassContext(opt_level=3, config=case.configs):
            lowered = tilelang.lower(case.make(), target=target, enable_device_compile=False)
        (folder / f"{case.name}.cpp").write_text(lowered.kernel_source)
    print(Path(tilelang.__file__).parent / "src")


if __name__ == "__main__":
    main()
