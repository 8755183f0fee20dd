"""A model of an Ascend NPU that runs programs of the thread stage.

    text         a program -> the text of a Python module (scalars: of expressions)
    instruction  one instruction: its operands as views of memory, what it means (its row)
    memories     UB, L1, L0A, L0B, L0C of a core group
    core         what the text of a core calls; inorder: at once; queued: by queues, checked
    levels       scalars that are the same in every block; abreast: several blocks at once
    crossing     flags between cores
    launch       groups in order of the program; program: the host level

In order (`AscendProgram.run`) it is fast and right for a program whose flags are right; on queues
(`AscendProgram.check`) missing flags show, in the numbers and in findings.
"""

from __future__ import annotations

from tilelang.simulator.ascend.program import AscendProgram

__all__ = ["AscendProgram"]
