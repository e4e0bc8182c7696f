"""Array types: JAX arrays inside computations, numpy arrays (float64) for data and results.

Axis names, everywhere in the package:
    seed       independent initialisations          replicate  independent randomisations of a quadrature
    depth L    residual blocks                      width M    units in a block
    dim D      embedding dimension                  reduced r  coordinates in the span of the data
    batch n    data points                          out        outputs
    step k     gradient steps taken                 node       Chebyshev nodes in depth-time
"""

import numpy as np
from jaxtyping import Array

AnyArray = Array | np.ndarray
