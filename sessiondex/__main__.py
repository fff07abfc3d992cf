"""`python -m sessiondex` is the console script."""

from sessiondex.cli import main

main()
