"""scaffold: depth expansion of normalised residual networks (arXiv 2605.08297).

Given a trained network cut at a site, would a new zero-initialised block there have a first-order descent direction, how strong is it, in which direction,
and how sure is that? The names follow the data: networks and normalisers, splits and insertion, blocks, activation gradients and their moments, signals and
verdicts, directions, steps and gains, covariances, and `analyse`, which does all of it. May import `hiddenwidth`; never the other way round.
"""

# networks
from ._norms import (
    AbstractNorm as AbstractNorm,
    Clamp as Clamp,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
    check_nondegenerate as check_nondegenerate,
    contractive_floor as contractive_floor,
)
from ._nets.residual import ResidualNet as ResidualNet
from ._nets.build import residual_conv as residual_conv, residual_mlp as residual_mlp, residual_transformer as residual_transformer
from ._loss import (
    AbstractLoss as AbstractLoss,
    Brier as Brier,
    ClippedCrossEntropy as ClippedCrossEntropy,
    CrossEntropy as CrossEntropy,
    Logistic as Logistic,
    SquaredError as SquaredError,
)
from ._train import Trained as Trained, train as train

# split and insertion
from ._split import Split as Split, containment_defect as containment_defect, split_sequence as split_sequence
from ._adapters import split_linen as split_linen, split_nnx as split_nnx
from ._insert import Expanded as Expanded, idempotence_defect as idempotence_defect, insert as insert

# blocks
from ._blocks.base import AbstractBlock as AbstractBlock, AbstractFeatureBlock as AbstractFeatureBlock
from ._blocks.features import (
    Bias as Bias,
    FeatureMap as FeatureMap,
    Linear as Linear,
    ZeroOut as ZeroOut,
    ZeroOutAttention as ZeroOutAttention,
    ZeroOutConv as ZeroOutConv,
)
from ._blocks.scaled import Antisymmetric as Antisymmetric, DoubleZero as DoubleZero, Gate as Gate, LayerScale as LayerScale, ZeroIn as ZeroIn
from ._families import FAMILIES as FAMILIES, make_block as make_block
from ._features import optimised_features as optimised_features
from ._order import StructuralOrder as StructuralOrder, structural_order as structural_order

# activation gradients
from ._gradients import activation_gradients as activation_gradients
from ._moments import Moments as Moments, moments_of as moments_of, stream as stream

# signals and verdicts
from ._mean_bounds import Bound as Bound, lower_bound as lower_bound, samples_needed as samples_needed
from ._signal import Signal as Signal, mcdiarmid_upper as mcdiarmid_upper, measure_signal as measure_signal
from ._crossfit import CrossFit as CrossFit, cross_fit as cross_fit, cross_fit_steepest as cross_fit_steepest
from ._second_order import mixed_derivative_signal as mixed_derivative_signal
from ._regression import RegressionSignal as RegressionSignal, regression_signal as regression_signal
from ._regime import (
    Regime as Regime,
    decide as decide,
    deepest_network as deepest_network,
    samples_to_decide as samples_to_decide,
    shared_level as shared_level,
    threshold as threshold,
)

# directions, steps, gains
from ._directions import Direction as Direction, deflate as deflate, direction as direction
from ._step import (
    Gain as Gain,
    Step as Step,
    armijo as armijo,
    difference_bound as difference_bound,
    evaluated_gain as evaluated_gain,
    exact_gain as exact_gain,
    line_search as line_search,
    smooth_gain as smooth_gain,
)
from ._realised import Realised as Realised, predicted_against_realised as predicted_against_realised
from ._population import (
    FinitePopulation as FinitePopulation,
    FreshSampler as FreshSampler,
    HeldOut as HeldOut,
    Population as Population,
    risk as risk,
    risk_gain as risk_gain,
)

# covariances
from ._covariance import Covariance as Covariance, Estimate as Estimate, covariance as covariance
from ._covariance_null import Diagonality as Diagonality, diagonality as diagonality
from ._shrinkage import Shrunk as Shrunk, second_moments as second_moments, shrink as shrink

# all of it
from ._analysis import Analysis as Analysis, Finding as Finding, Site as Site
from ._analyse import analyse as analyse
from . import datasets as datasets, plot as plot, testbeds as testbeds
