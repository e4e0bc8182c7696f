"""hiddenwidth: finite residual networks, their infinite limits, and the error laws between them."""

from . import plot as plot, problems as problems
from ._claims import Claim as Claim
from ._ensemble import Ensemble as Ensemble, ensemble as ensemble
from ._law import Gaussian as Gaussian, Skewed as Skewed
from ._limit.coupling import Coupling as Coupling, coupling_error as coupling_error
from ._limit.infinite_width import DepthError as DepthError, depth_error as depth_error, infinite_width as infinite_width
from ._limit.mean_ode import mean_ode as mean_ode
from ._limit.solution import Budget as Budget, MeanODE as MeanODE
from ._problem import Problem as Problem
from ._quadrature import GaussHermite as GaussHermite, MonteCarlo as MonteCarlo, Sobol as Sobol
from ._rates import RateFit as RateFit, fit_rates as fit_rates
from ._resnet import ResNet as ResNet
from ._scaling import Scaling as Scaling, fan_in as fan_in, lazy as lazy, mlu as mlu
from ._sweep import Interrupted as Interrupted, sweep as sweep
from ._train import Trajectory as Trajectory, train as train
from ._two_layer import TwoLayer as TwoLayer, TwoLayerParams as TwoLayerParams
from ._unit import AbstractUnit as AbstractUnit
