"""Normalised residual networks: branches, layers, whole networks and their sites."""
