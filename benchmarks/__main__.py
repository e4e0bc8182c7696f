"""Find the benchmarks, run those that were asked for, print one table."""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import benchmarks
from benchmarks._slim import copy_records
from hiddenwidth._claims import Claim, table


def find() -> dict[str, str]:
    """Name -> module of every benchmark, with the first line of its docstring behind it."""
    names = {}
    for info in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
        if not info.ispkg and not info.name.rsplit(".", 1)[1].startswith("_"):
            names[info.name.removeprefix("benchmarks.")] = info.name
    return names


def main() -> int:
    """Entry point."""
    names = find()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("name", nargs="*", help="benchmarks to run; none lists them")
    parser.add_argument("--all", action="store_true", help="run every benchmark")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--records", type=Path, help="also copy claims, statistics and pictures there, without the members (to be committed)")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"), help="directory for the records")
    options = parser.parse_args()
    unknown = [n for n in options.name if n not in names]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; expected one of {', '.join(names)}")
    chosen = list(names) if options.all else options.name
    if not chosen:
        for name, module in names.items():
            print(f"{name:18} {(importlib.import_module(module).__doc__ or '').splitlines()[0]}")
        return 0
    claims: list[Claim] = []
    for name in chosen:
        module = importlib.import_module(names[name])
        print(f"== {name}", flush=True)
        claims += [c._replace(name=f"{name}: {c.name}") for c in module.run(options.out / name, quick=options.quick)]
        if options.records:
            copy_records(options.out / name, options.records / name)
    print(table(claims))
    return 0


sys.exit(main())
