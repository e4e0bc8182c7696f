"""What the cells of a sweep have in common, and what belongs to one: key, problem, scaling, cost."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ._choices import choose, positive_float, positive_int
from ._cluster import threads_per_worker
from ._devices import seed_devices
from ._ensemble import check_dtype, members_abreast
from ._fingerprint import fingerprint
from ._grid import Field, Layout
from ._parallel import default_workers
from ._problem import EMBEDDINGS, Problem
from ._provenance import provenance
from ._scaling import Scaling, lazy
from ._train import check_hidden_steps
from ._unit import AbstractUnit

#: Folded into the key of a sweep for its embeddings: a depth that no network has.
EMBEDDING_KEY = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """All cells of a sweep and what they have in common. Can be pickled."""

    problem: Problem
    unit: AbstractUnit
    scaling: Scaling
    axes: dict[str, list]
    seeds: dict[int, int]  # of every width
    steps: int
    recorded: tuple[int, ...]
    dtype: np.dtype
    embedding: str
    memory: float
    at_once: int
    key_kind: str
    key_data: tuple[int, ...]
    version: str

    @classmethod
    def checked(
        cls, problem, unit, scaling, *, depths, widths, dims, alphas, seeds, steps, dtype, hidden_steps, embedding, memory, workers, client, key
    ) -> "Cells":
        """Refuse what is not possible before anything is computed."""
        axes: dict[str, list] = {"depth": sorted({positive_int("depths", d) for d in depths}), "width": sorted({positive_int("widths", w) for w in widths})}
        if not axes["depth"] or not axes["width"]:
            raise ValueError(f"depths={axes['depth']} and widths={axes['width']}: expected at least one of each.")
        if dims is not None:
            axes["embedding_dim"] = sorted({positive_int("dims", d) for d in dims})
        if alphas is not None:
            axes["alpha"] = sorted({positive_float("alphas", a) for a in alphas})
            if scaling.fan_in or scaling.alpha != 1.0:
                raise ValueError(f"alphas={axes['alpha']} replaces the alpha of {scaling!r}; expected alpha=1 and critical weights. Use mlu(...).")
        for name, values in (("dims", axes.get("embedding_dim")), ("alphas", axes.get("alpha"))):
            if values == []:
                raise ValueError(f"{name}=[] is empty; expected at least one, or {name}=None.")
        choose("embedding", embedding, EMBEDDINGS)
        if client is not None and workers is not None:
            raise ValueError(f"workers={workers} and client= were both given; expected one. The workers of a cluster are those of its client.")
        at_once = threads_per_worker(client) if client is not None else default_workers() if workers is None else positive_int("workers", workers)
        recorded = check_hidden_steps(hidden_steps, positive_int("steps", steps))
        data = tuple(int(x) for x in np.asarray(jax.random.key_data(key)))
        cells = cls(
            problem, unit, scaling, axes, check_seeds(seeds, axes["width"]), steps, recorded, check_dtype(dtype), embedding, memory, at_once,
            str(jax.random.key_impl(key)), data, provenance()["versions"]["hiddenwidth"],
        )  # fmt: skip
        for at in cells.corners():
            cells.problem_at(at).space()  # refuses an infinite dimension
            cells.group(at)
        return cells

    def key_at(self, at: dict[str, Any]) -> Key[Array, ""]:
        """Key of a cell: it depends on the cell's own coordinates alone."""
        key = self._fold(at["depth"], at["width"])
        if "embedding_dim" in at:
            key = jax.random.fold_in(key, at["embedding_dim"])
        if "alpha" in at:
            key = jax.random.fold_in(key, int(np.float32(at["alpha"]).view(np.uint32)))
        return key

    def problem_at(self, at: dict[str, Any]) -> Problem:
        """The problem of a cell: embedded anew where the grid has dimensions, else as it was given."""
        dim = at.get("embedding_dim")
        return self.problem if dim is None else self.problem.with_dim(dim, key=self._fold(EMBEDDING_KEY, dim), embedding=self.embedding)

    def scaling_at(self, at: dict[str, Any]) -> Scaling:
        """The scaling of a cell."""
        rates = {k: getattr(self.scaling, k) for k in ("learning_rate_u", "learning_rate_v")}
        return lazy(at["alpha"], **rates) if "alpha" in at else self.scaling

    def corners(self) -> list[dict[str, Any]]:
        """The largest cell of every dimension."""
        return [
            {k: values[-1] for k, values in self.axes.items()} | ({} if d is None else {"embedding_dim": d}) for d in self.axes.get("embedding_dim", [None])
        ]

    def seeds_at(self, at: dict[str, Any]) -> int:
        """Members of a cell."""
        return self.seeds[at["width"]]

    def group(self, at: dict[str, Any]) -> int:
        """Members of a cell that are trained abreast, on all devices; `ValueError` when none fits into the memory."""
        problem, seeds = self.problem_at(at), self.seeds_at(at)
        devices = len(seed_devices(seeds))
        each = members_abreast(problem, self.unit, at["depth"], at["width"], -(-seeds // devices), self.dtype.itemsize, self.memory / self.at_once, devices)
        return min(seeds, devices * each)

    def _fold(self, *numbers: int) -> Key[Array, ""]:
        key = jax.random.wrap_key_data(jnp.asarray(self.key_data, jnp.uint32), impl=self.key_kind)
        for number in numbers:
            key = jax.random.fold_in(key, number)
        return key

    def flops(self, at: dict[str, Any]) -> float:
        """Floating-point operations of a cell: 6 n for every weight, step and seed.

        Two-layer units have 2 L M D weights and six matrix products a step, 12 L M D n operations; for other units it is an estimate.
        """
        dim = int(at.get("embedding_dim", self.problem.dim))
        weights = at["depth"] * at["width"] * sum(count for _, count in self.unit.laws(dim))
        return 6.0 * len(self.problem.inputs) * weights * self.steps * self.seeds_at(at)

    def layout(self) -> Layout:
        """Axes and arrays of the dataset."""
        batch, out = self.problem.targets.shape
        widest, most, r, k = max(self.axes.get("embedding_dim", [self.problem.dim])), max(self.seeds.values()), len(self.recorded), self.steps + 1
        fields = {
            "hidden": Field(("seed", "recorded", "batch", "dim"), (most, r, batch, int(widest)), self.dtype, np.nan),
            "output": Field(("seed", "step", "batch", "out"), (most, k, batch, out), self.dtype, np.nan),
            "loss": Field(("seed", "step"), (most, k), self.dtype, np.nan),
            "diverged_at": Field(("seed",), (most,), np.dtype(np.int32), -1),
            "seeds": Field((), (), np.dtype(np.int32), 0),
            "wall_s": Field((), (), np.dtype(np.float64), np.nan),
        }
        return Layout(self.axes, fields, {"seed": list(range(most)), "step": list(range(k)), "recorded": list(self.recorded)})

    def config(self) -> dict[str, Any]:
        """Everything that the numbers depend on, beyond rounding: what a store is recognised by."""
        return {
            "hiddenwidth": self.version,
            "problem": {
                "name": self.problem.name,
                "digest": self.problem.digest(),
                "embedding": self.embedding if "embedding_dim" in self.axes else "as given",
            },
            "unit": fingerprint(self.unit),
            "scaling": fingerprint(self.scaling),
            **{f"{name}s": values for name, values in self.axes.items()},
            "seeds": {str(width): seeds for width, seeds in self.seeds.items()},
            "steps": self.steps,
            "hidden_steps": list(self.recorded),
            "dtype": str(self.dtype),
            "key": [self.key_kind, list(self.key_data)],
        }

    def attributes(self) -> dict[str, Any]:
        """Provenance of the dataset."""
        return {
            "problem": self.problem.name,
            "problem_digest": self.problem.digest(),
            **({"embedding": self.embedding} if "embedding_dim" in self.axes else {"dim": int(self.problem.dim)}),
            "unit": repr(self.unit),
            "scaling": repr(self.scaling),
            "steps": self.steps,
            "dtype": str(self.dtype),
            "key": json.dumps(list(self.key_data)),
            **{name: value if isinstance(value, (str, int, float)) else json.dumps(value) for name, value in provenance().items()},
        }


def check_seeds(seeds: int | Mapping[int, int], widths: list[int]) -> dict[int, int]:
    """Members of the cells of every width."""
    if not isinstance(seeds, Mapping):
        return dict.fromkeys(widths, positive_int("seeds", seeds))
    if set(seeds) != set(widths):
        raise ValueError(f"seeds has the widths {sorted(seeds)} and the grid {widths}; expected a number for each width of the grid.")
    return {width: positive_int(f"seeds[{width}]", seeds[width]) for width in widths}
