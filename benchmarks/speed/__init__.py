"""How fast: networks, limits, compilation, against plain loops and against what the machine can do."""
