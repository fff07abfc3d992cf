"""The command line: click commands, one module a noun. They parse, call and print.

Nothing heavy is loaded before the command that needs it is known.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line with the arguments of the process and ends the process."""
    from sessiondex.cli.application import run

    sys.exit(run(sys.argv[1:]))
