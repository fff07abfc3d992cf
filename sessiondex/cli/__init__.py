"""The command line: click commands, one module a noun. They parse, call and print.

Nothing heavy is loaded before the command that needs it is known.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Runs the command line with the arguments of the process and ends the process."""
    # Most of what a command makes lives until it ends: looking for garbage early is in vain.
    gc.set_threshold(50_000)
    try:
        from sessiondex.cli.application import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        # Before the run began, or again while it ended.
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Taking the interpreter apart would be a fifth of a short search.
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
