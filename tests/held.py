"""A folder that another process holds."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLDER = """
import sys, time
from pathlib import Path
from qpriv.io import lock_dir
lock_dir(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def held_by_another(folder: Path) -> Iterator[int]:
    """Yield the number of a process that holds a folder, and kill it with -9 at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, folder], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "held\n"
            yield holder.pid
        finally:
            holder.kill()
