"""Independent RouterOS API clients from npm, and the harness to query them."""
