"""The command line: one command a capability."""

import re
import sys
from dataclasses import fields

import tyro

from ._commands import rates

COMMANDS = {"rates": (rates.RatesConfig, rates.run)}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `hiddenwidth`; exits 0 (done), 1 (every member of a cell diverged), 2 (bad input), 130 (Ctrl-C)."""
    config = tyro.extras.subcommand_cli_from_dict(
        {name: kind for name, (kind, _) in COMMANDS.items()}, prog="hiddenwidth", description=sys.modules["hiddenwidth"].__doc__, args=arguments
    )
    name, command = next((name, run) for name, (kind, run) in COMMANDS.items() if isinstance(config, kind))
    try:
        outcome = command(config)
    except ValueError as error:
        print(f"hiddenwidth {name}: {in_options(str(error), config)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"hiddenwidth {name}: interrupted before anything was finished.", file=sys.stderr)
        sys.exit(130)
    print(outcome.text, file=sys.stdout if outcome.status == 0 else sys.stderr)
    sys.exit(outcome.status)


def in_options(message: str, config: object) -> str:
    """Write the names of arguments as the options that were typed: `learning_rate=3` becomes `--learning-rate 3`."""
    for field in fields(config):  # pyright: ignore[reportArgumentType]
        message = re.sub(rf"\b{field.name}=", f"--{field.name.replace('_', '-')} ", message)
    return message
