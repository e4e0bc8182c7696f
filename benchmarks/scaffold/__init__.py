"""Benchmarks of scaffold."""
