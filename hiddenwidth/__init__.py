"""hiddenwidth: finite residual networks, their infinite limits, and the error laws between them."""

from ._compile_cache import keep_compiled as keep_compiled
from ._devices import use_all_cores as use_all_cores

# In reading order: law, unit, scale, problem, network, training, limit, ensemble, rate, phase diagram, picture.
from ._law import Gaussian as Gaussian, Skewed as Skewed
from ._unit import AbstractUnit as AbstractUnit
from ._activation import Polynomial as Polynomial
from ._two_layer import TwoLayer as TwoLayer, TwoLayerParams as TwoLayerParams
from ._scaling import Scaling as Scaling, mlu as mlu, lazy as lazy, fan_in as fan_in, complete_p as complete_p, residual as residual
from ._problem import Problem as Problem
from . import problems as problems
from ._resnet import ResNet as ResNet
from ._train import Trajectory as Trajectory, train as train
from ._quadrature import Sobol as Sobol, GaussHermite as GaussHermite, MonteCarlo as MonteCarlo
from ._limit.mean_ode import mean_ode as mean_ode
from ._limit.tangent_ode import tangent_ode as tangent_ode
from ._limit.linearised_ode import linearised_ode as linearised_ode
from ._limit.solution import Budget as Budget, Limit as Limit
from ._limit.infinite_width import InfiniteWidth as InfiniteWidth, infinite_width as infinite_width
from ._limit.infinite_width import DepthError as DepthError, depth_error as depth_error
from ._limit.dimension import DimensionError as DimensionError, dimension_error as dimension_error
from ._limit.coupling import Coupling as Coupling, coupling_error as coupling_error
from ._limit.stability import Horizon as Horizon, horizon as horizon, stability as stability
from ._ensemble import Ensemble as Ensemble, ensemble as ensemble
from ._sweep import Interrupted as Interrupted, sweep as sweep
from ._cost import sweep_cost as sweep_cost
from ._store import open_sweep as open_sweep
from ._lifted import sweep_shapes as sweep_shapes
from ._claims import Claim as Claim
from ._rates import RateFit as RateFit, fit_rates as fit_rates
from ._linearised import train_linearised as train_linearised
from ._lazy import LazyReference as LazyReference, lazy_order as lazy_order, lazy_reference as lazy_reference, lazy_sweep as lazy_sweep
from ._lazy_fit import LazyFit as LazyFit, fit_lazy as fit_lazy
from ._dimension_fit import DimensionFit as DimensionFit, fit_dimension as fit_dimension
from ._shape_law import ShapeLaw as ShapeLaw
from ._shape import BestShape as BestShape, Shape as Shape, best_shape as best_shape
from ._phase import phase_diagram as phase_diagram
from ._tuned import tuned_rates as tuned_rates
from ._phase_fit import PhaseFit as PhaseFit, fit_phase as fit_phase
from . import plot as plot
