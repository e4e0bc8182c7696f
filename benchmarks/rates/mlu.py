"""Theorem 1: a/L, b sqrt(D/(LM)) and c/(LM) on three problems, exponents with intervals.

The three runs of `hiddenwidth rates` at their default sizes (about 5 minutes on 2 cores).
"""

from pathlib import Path
from typing import Literal, get_args

from benchmarks import _slim
from hiddenwidth._claims import Claim
from hiddenwidth._commands import rates

ProblemName = Literal["sine", "gaussian", "digits"]


def run(out: Path, *, quick: bool = False) -> list[Claim]:
    """Run every problem; the record of each is in OUT/PROBLEM."""
    claims = []
    for problem in get_args(ProblemName):
        config = rates.RatesConfig(problem=problem, out=out / problem, overwrite=True, quick=quick)
        outcome = rates.run(config)
        print(outcome.text, flush=True)
        claims += [c._replace(name=f"{problem}.{c.name}") for c in _slim.claims(config.out)]
    return claims
