"""The CRS812 of the rack, from rack.yaml to API sentences and back.

Pure parts (no pyinfra, no network): `cages`, `menus`, `values`, `diff`, `reading`, `gate`, `plan`,
`sentences`. Parts that speak: `api` (one session), `connector` and `facts` (the switch as a pyinfra host),
`transaction` (what happens in which order and what is checked in between), `apply` (the one operation).
"""
