"""Pictures, drawn from records alone. Every function returns its Axes."""

from .rates import rates as rates
from .lazy import lazy as lazy
from .phase import phase as phase
from .dimension import dimension as dimension
from .shape import shape as shape
from .horizon import horizon as horizon
