"""The virtual rack: real kernels as nodes, emulated switches that wire them, all inside one network namespace."""
