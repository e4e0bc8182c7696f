"""`python -m scaffold` is the command `scaffold`."""

from .cli import main

main()
