"""hiddenwidth: finite residual networks, their infinite limits, and the error laws between them."""

from . import plot as plot, problems as problems
from ._claims import Claim as Claim
from ._ensemble import Ensemble as Ensemble, ensemble as ensemble
from ._law import Gaussian as Gaussian, Skewed as Skewed
from ._limit.coupling import Coupling as Coupling, coupling_error as coupling_error
from ._limit.infinite_width import depth_error as depth_error, DepthError as DepthError, infinite_width as infinite_width
from ._limit.mean_ode import mean_ode as mean_ode
from ._limit.solution import MeanODE as MeanODE
from ._problem import Problem as Problem
from ._quadrature import GaussHermite as GaussHermite, MonteCarlo as MonteCarlo, Sobol as Sobol
from ._rates import fit_rates as fit_rates, RateFit as RateFit
from ._resnet import ResNet as ResNet
from ._scaling import fan_in as fan_in, lazy as lazy, mlu as mlu, Scaling as Scaling
from ._sweep import Interrupted as Interrupted, sweep as sweep
from ._train import train as train, Trajectory as Trajectory
from ._two_layer import TwoLayer as TwoLayer, TwoLayerParams as TwoLayerParams
from ._unit import AbstractUnit as AbstractUnit
