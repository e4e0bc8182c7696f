from . import typecheck as typecheck  # found by name by the jaxtyping import hook
