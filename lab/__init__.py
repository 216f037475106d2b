"""The virtual rack: real kernels as nodes, an emulated CRS812 that wires them, all inside one network namespace."""
