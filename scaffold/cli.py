"""The command line: one command a capability."""

from hiddenwidth.cli import dispatch

from ._commands import analyse

COMMANDS = {
    "analyse": (analyse.AnalyseConfig, analyse.run),
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `scaffold`; exits 0 (done), 1 (the machine could not do it), 2 (bad input), 130 (Ctrl-C)."""
    dispatch("scaffold", COMMANDS, arguments)
