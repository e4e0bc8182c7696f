"""Commands of the command line: options, run, record, picture."""
