"""Zero-initialised residual blocks, one family a class, and how they are told from dead ones."""
