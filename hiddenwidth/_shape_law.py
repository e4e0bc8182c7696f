r"""The joint error law of a shape (L, M, D), with its constants:

    e^2 = (a/L)^2 + 2 cos(theta) (a/L)(c D/(LM)) + (c D/(LM))^2 + b^2 S/(LM) + d^2/D,        S = D for hidden states, 1 for outputs

depth and bias are both means and add as vectors at an angle theta; the two fluctuations, over units and over embeddings, are independent of each other.

Shapes are compared by these leading orders. Where a number is to be predicted for a network that exists, the next orders of every term, exp(e_1/L + ...),
which the fits measured on the way, are put back (`refined`).
"""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ._claims import Claim
from ._depth_fit import Estimate
from ._statistics import NORMAL_95

#: Term -> what it falls with.
TERMS = {"depth": "1/L", "bias": "D/(LM)", "fluctuation": "sqrt(D/(LM))", "limit": "1/sqrt(D)"}
DRAWS = 2000


class Ends(NamedTuple):
    """What a joint law holds besides its constants: see `ShapeLaw`."""

    cosine: float = 0.0
    ends: int = 2
    reduced: int = 2
    orders: dict[str, dict[str, float]] = {}  # noqa: RUF012


def next_orders(depth: Any, width: Any, dim: Any, reduced: int) -> dict[str, Any]:
    """The columns of the expansion: 1/L, x = D/(LM), w = r/D, and their products."""
    u, w = 1.0 / np.asarray(depth, float), reduced / np.asarray(dim, float)
    x = np.asarray(dim, float) / (np.asarray(depth, float) * width)
    return {"1/L": u, "x": x, "w": w, "1/L^2": u**2, "x^2": x**2, "x/L": x * u, "w^2": w**2, "w^3": w**3, "w/L": w * u, "w x": w * x}


class ShapeLaw(eqx.Module):
    """Constants of the joint law of one observable at one gradient step.

    **Arguments:** `depth`, `bias`, `fluctuation`, `limit`: a, c, b, d with standard errors; `cosine`: cos(theta); `ends`: d_in + d_out; `reduced`: dimension
    of the span of the data, the least D; `orders`: coefficients of the next orders of every term, by the names of `next_orders`.

    **Example:**

    ```python
    law = hw.ShapeLaw.of(a=0.23, b=0.77, c=0.05, d=1.1)
    law.error(8, 512, 128), law.terms(8, 512, 128)
    ```
    """

    observable: str = eqx.field(static=True)
    depth: Estimate
    fluctuation: Estimate
    bias: Estimate
    limit: Estimate
    cosine: float = 0.0
    ends: int = 2
    reduced: int = 2
    orders: dict[str, dict[str, float]] = eqx.field(default_factory=dict)

    def __check_init__(self):
        if self.observable not in ("hidden", "output"):
            raise ValueError(f"observable={self.observable!r} is unknown; expected 'hidden' or 'output'.")
        for name in ("depth", "fluctuation", "limit"):
            value = getattr(self, name).value
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"the law of {self.observable} has no {name} constant (got {value}); expected a number above 0. Measure it with more seeds.")

    @classmethod
    def of(cls, *, a: float, b: float, c: float, d: float, observable: str = "hidden", cosine: float = 0.0, ends: int = 2, reduced: int = 2) -> "ShapeLaw":
        """A law with exact constants."""
        a_, b_, c_, d_ = (Estimate(float(x), 0.0, 0.0) for x in (a, b, c, d))
        return cls(observable, a_, b_, c_, d_, float(cosine), ends, reduced)

    @property
    def constants(self) -> Float[np.ndarray, " 4"]:
        """(a, b, c, d); a bias that was not resolved counts as 0."""
        return np.array([self.depth.value, self.fluctuation.value, max(np.nan_to_num(self.bias.value), 0.0), self.limit.value])

    def terms(self, depth: Any, width: Any, dim: Any, constants: Float[np.ndarray, "4 *draws"] | None = None) -> dict[str, Any]:
        """Mean square of every term; the cross term of depth and bias counts as bias."""
        a, b, c, d = self.constants if constants is None else constants
        product = np.asarray(depth, float) * width
        at_depth, at_bias = a / np.asarray(depth, float), c * dim / product
        noise = dim / product if self.observable == "hidden" else 1.0 / product
        return {
            "depth": at_depth**2,
            "bias": at_bias**2 + 2 * self.cosine * at_depth * at_bias,
            "fluctuation": b**2 * noise,
            "limit": d**2 / np.asarray(dim, float),
        }

    def refined_terms(self, depth: Any, width: Any, dim: Any, constants: Float[np.ndarray, "4 *draws"] | None = None) -> dict[str, Any]:
        """Mean square of every term with the next orders put back."""
        columns = next_orders(depth, width, dim, self.reduced)
        terms_of = {k: self.orders.get(k, {}).items() for k in ("depth", "bias", "fluctuation", "limit")}
        logs = {k: sum((beta * columns[name] for name, beta in some), np.zeros(())) for k, some in terms_of.items()}
        terms = self.terms(depth, width, dim, constants)
        # Corrections of depth belong to the error itself, those of the others to its square; the cross term takes one factor of each error.
        a, _, c, _ = self.constants if constants is None else constants
        cross = 2 * self.cosine * a * c * dim / (np.asarray(depth, float) ** 2 * width)
        bias = (terms["bias"] - cross) * np.exp(logs["bias"]) + cross * np.exp(logs["depth"] + logs["bias"] / 2)
        return {
            "depth": terms["depth"] * np.exp(2 * logs["depth"]),
            "bias": bias,
            "fluctuation": terms["fluctuation"] * np.exp(logs["fluctuation"]),
            "limit": terms["limit"] * np.exp(logs["limit"]),
        }

    def refined(self, depth: Any, width: Any, dim: Any) -> Any:
        """Predicted root-mean-square error with the next orders put back."""
        return np.sqrt(sum(self.refined_terms(depth, width, dim).values()))

    def square(self, depth: Any, width: Any, dim: Any) -> Any:
        """Predicted mean square error to the Mean ODE at D = infinity, leading orders."""
        return sum(self.terms(depth, width, dim).values())

    def error(self, depth: Any, width: Any, dim: Any) -> Any:
        """Predicted root-mean-square error, leading orders."""
        return np.sqrt(self.square(depth, width, dim))

    def draws(self, depth: Any, width: Any, dim: Any, *, refined: bool = False) -> Float[np.ndarray, " draws"]:
        """Predicted errors with the constants drawn from their uncertainties; they were measured apart, so independently."""
        se = np.nan_to_num([x.half_width / NORMAL_95 for x in (self.depth, self.fluctuation, self.bias, self.limit)])
        constants = np.abs(self.constants[:, None] + se[:, None] * np.random.default_rng(0).standard_normal((4, DRAWS)))
        terms = (self.refined_terms if refined else self.terms)(depth, width, dim, constants)
        return np.sqrt(sum(terms.values()))

    def interval(self, depth: int, width: int, dim: int, *, refined: bool = False) -> tuple[float, float]:
        """95 % interval of the predicted error."""
        low, high = np.percentile(self.draws(depth, width, dim, refined=refined), [2.5, 97.5])
        return float(low), float(high)


def law_from_claims(claims: list[Claim] | list[dict[str, Any]], observable: str, ends: Ends) -> ShapeLaw:
    """The law whose constants are claims `OBSERVABLE.TERM.constant`, as objects or as in a record."""
    by_name = {c["name"]: c for c in (c._asdict() if isinstance(c, Claim) else c for c in claims)}

    def constant(term: str) -> Estimate:
        name = f"{observable}.{term}.constant"
        if name not in by_name:
            raise ValueError(f"law has no claim {name!r}; expected the record of `hiddenwidth dimension`.")
        c = by_name[name]
        value, se, low, high = (np.nan if x is None else float(x) for x in (c["value"], c["se"], *c["ci95"]))
        return Estimate(value, se, (high - low) / 2)

    depth, fluctuation, bias, limit = (constant(term) for term in ("depth", "fluctuation", "bias", "limit"))
    return ShapeLaw(observable, depth, fluctuation, bias, limit, *ends)
