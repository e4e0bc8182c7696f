"""The command line: one command a capability."""

import contextlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import jax
import tyro

from ._commands import dimension, horizon, lazy, phase, rates, shape, sweep
from ._commands._outcome import Outcome
from ._compile_cache import keep_compiled
from ._devices import use_all_cores

COMMANDS = {
    "rates": (rates.RatesConfig, rates.run),
    "lazy": (lazy.LazyConfig, lazy.run),
    "phase": (phase.PhaseConfig, phase.run),
    "dimension": (dimension.DimensionConfig, dimension.run),
    "shape": (shape.ShapeConfig, shape.run),
    "horizon": (horizon.HorizonConfig, horizon.run),
    "sweep": (sweep.SweepConfig, sweep.run),
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `hiddenwidth`; exits 0 (done), 1 (every member of a cell diverged), 2 (bad input), 130 (Ctrl-C)."""
    dispatch("hiddenwidth", COMMANDS, arguments)


def dispatch(program: str, commands: Mapping[str, tuple[Any, Callable[[Any], Outcome]]], arguments: list[str] | None) -> None:
    """Run the command that was asked for: its text and exit status, and no traceback for what the user can mend."""
    config = tyro.extras.subcommand_cli_from_dict(
        {name: kind for name, (kind, _) in commands.items()}, prog=program, description=sys.modules[program].__doc__, args=arguments
    )
    name, command = next((name, run) for name, (kind, run) in commands.items() if isinstance(config, kind))
    with contextlib.suppress(RuntimeError):  # called from a program in which JAX computes already: its devices are what they are
        use_all_cores()
    keep_compiled()
    try:
        outcome = command(config)
    except ValueError as error:
        print(f"{program} {name}: {in_options(str(error), config)}", file=sys.stderr)
        sys.exit(2)
    except (MemoryError, OSError, jax.errors.JaxRuntimeError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        print(f"{program} {name}: the machine could not do it: {what}. Choose smaller sizes, or another --out.", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{program} {name}: interrupted; nothing more was written.", file=sys.stderr)
        sys.exit(130)
    print(outcome.text, file=sys.stdout if outcome.status == 0 else sys.stderr)
    sys.exit(outcome.status)


def in_options(message: str, config: object) -> str:
    """Write the names of arguments as the options that were typed: `learning_rate=3` becomes `--learning-rate 3`, a bare `name=` loses its sign."""
    for field in fields(config):  # pyright: ignore[reportArgumentType]
        option = f"--{field.name.replace('_', '-')}"
        message = re.sub(rf"\b{field.name}=(?=\s)", option, message)
        message = re.sub(rf"\b{field.name}=", f"{option} ", message)
    return message
