"""How the threads of a command wait for each other, and how many there are."""

import os

WAITING = {
    # GNU's runtime, that of torch's wheels for Linux: rounds of a loop, less than a millisecond
    "GOMP_SPINCOUNT": "10000",
    # the runtimes of LLVM and Intel, elsewhere: milliseconds
    "KMP_BLOCKTIME": "1",
}
"""How long a thread that waits for the others keeps its core before it sleeps.

The runtimes' own are several milliseconds (GNU) and 200 (LLVM). All of it is lost whenever another
program has the core of the thread that is waited for, so that a busy machine works at waiting. To
sleep at once (``OMP_WAIT_POLICY=passive``) costs an idle machine as much: the threads of a small
model meet thousands of times a second. No figure depends on how threads wait; the last digits
depend on how many there are. Measured by ``python -m benchmarks.threads``.
"""

SETTINGS = ("OMP_WAIT_POLICY", *WAITING)
"""What a user may say about waiting; then nothing is added to it."""


def settle_threads() -> None:
    """Set what OpenMP reads when torch is imported, unless the user has set it."""
    if not any(name in os.environ for name in SETTINGS):
        os.environ.update(WAITING)
    # OpenMP counts the cores of the process's mask, and knows nothing of a container's quota
    masked = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (quota := cores()) < (masked or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(quota))


def cores() -> int:
    """Return how many cores this process may keep busy: those of its mask, up to its quota."""
    from joblib import cpu_count  # here: help and typing mistakes load no numpy

    return int(cpu_count())
