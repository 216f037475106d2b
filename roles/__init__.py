"""What a node shall be, one folder a concern: `state` says it, `apply` makes it so, `verify` proves it."""
