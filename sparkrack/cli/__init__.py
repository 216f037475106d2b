"""The `sparkrack` command: thin words around roles, switch and lab."""
