"""scaffold: depth expansion of normalised residual networks (arXiv 2605.08297).

The front door of the second package of this distribution. It has no public names yet: block insertion, activation gradients and certificates come with their
own releases. It may import `hiddenwidth`; never the other way round.
"""

__all__: list[str] = []
