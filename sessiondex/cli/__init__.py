"""The command line: click commands, one module a noun. They parse, call and print.

Nothing heavy is loaded before the command that needs it is known.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Runs the command line with the arguments of the process and ends the process."""
    try:
        from sessiondex.cli.application import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        # Before the run began, or again while it ended.
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)
