"""Array types: JAX arrays inside computations, numpy arrays (float64) for data and results.

Axis names, everywhere in the package:
    seed       independent initialisations          replicate  independent randomisations of a quadrature
    depth L    residual blocks                      width M    units in a block
    dim D      embedding dimension                  reduced r  coordinates in the span of the data
    batch n    data points                          out        outputs
    step k     gradient steps taken                 node       Chebyshev nodes in depth-time
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Float, Int

# Checked at run time; static checkers cannot tell which of the two a field holds.
if TYPE_CHECKING:
    AnyArray = Any
    Scalar = Any
    Depth = Any
else:
    AnyArray = Array | np.ndarray
    Scalar = float | Float[Array, ""]  # a number as the user gives it, or as a compiled function sees it
    Depth = int | Int[Array, ""]  # a number of layers or the index of one, likewise
