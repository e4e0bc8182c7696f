"""The run-time type checker of the test suite: beartype, with int accepted where float is written, as in static typing."""

from beartype import BeartypeConf, beartype

tower = beartype(conf=BeartypeConf(is_pep484_tower=True))
