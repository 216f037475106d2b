"""The emulated CRS812 over real sockets, asked by clients that nobody here wrote and by raw bytes."""
