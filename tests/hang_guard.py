"""No kernel may hang: a test that takes this long fails where it is."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

SECONDS = 60


@pytest.fixture
def hang_guard() -> Iterator[None]:
    """Raise in the test itself once its time is over (where the system has timers)."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def over(_: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still running after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
