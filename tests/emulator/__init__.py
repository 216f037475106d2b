"""The emulated CRS812 over real sockets, queried by independent clients and by raw bytes."""
