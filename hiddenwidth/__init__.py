"""hiddenwidth: finite residual networks, their infinite limits, and the error laws between them."""

# In reading order: law, unit, scale, problem, network, training, limit, ensemble, rate, phase diagram, picture.
from ._law import Gaussian as Gaussian, Skewed as Skewed
from ._unit import AbstractUnit as AbstractUnit
from ._two_layer import TwoLayer as TwoLayer, TwoLayerParams as TwoLayerParams
from ._scaling import Scaling as Scaling, mlu as mlu, lazy as lazy, fan_in as fan_in, complete_p as complete_p, residual as residual
from ._problem import Problem as Problem
from . import problems as problems
from ._resnet import ResNet as ResNet
from ._train import Trajectory as Trajectory, train as train
from ._quadrature import Sobol as Sobol, GaussHermite as GaussHermite, MonteCarlo as MonteCarlo
from ._limit.mean_ode import mean_ode as mean_ode
from ._limit.solution import Budget as Budget, MeanODE as MeanODE
from ._limit.infinite_width import InfiniteWidth as InfiniteWidth, infinite_width as infinite_width
from ._limit.infinite_width import DepthError as DepthError, depth_error as depth_error
from ._limit.coupling import Coupling as Coupling, coupling_error as coupling_error
from ._ensemble import Ensemble as Ensemble, ensemble as ensemble
from ._sweep import Interrupted as Interrupted, sweep as sweep
from ._claims import Claim as Claim
from ._rates import RateFit as RateFit, fit_rates as fit_rates
from ._phase import phase_diagram as phase_diagram
from ._tuned import tuned_rates as tuned_rates
from ._phase_fit import PhaseFit as PhaseFit, fit_phase as fit_phase
from . import plot as plot
