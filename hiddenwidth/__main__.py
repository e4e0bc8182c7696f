"""`python -m hiddenwidth`: the same as the command `hiddenwidth`."""

from .cli import main

main()
