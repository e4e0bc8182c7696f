"""The engine: sweeps that lose nothing."""
