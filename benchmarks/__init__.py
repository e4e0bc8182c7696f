"""Benchmarks: one claim a file, each with a configuration, a quick size, a record and a figure.

`python -m benchmarks` lists them, `python -m benchmarks NAME` runs one, `python -m benchmarks --all` runs all and prints one table.
"""
