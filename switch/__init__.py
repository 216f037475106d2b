"""The CRS812 of the rack, from rack.yaml to API sentences and back.

What is wanted (pure: no pyinfra, no network): `wanted` (rack.yaml as rows of menus), `menus` (the tables), `cages`.
What is there: `reading`, `gate` (is it this unit?), `values` and `diff` (what differs), `faults`, `drift` (in words).
What to do: `plan` and `batch` (in which order, whom it disturbs), `paths` (would it cut us off?), `undo`, `deadman`.
Doing it: `transaction` (the steps), `conduct` (carries them out and says which state the switch is in), `settling`
and `witness` (both ends of a link), `backup`, `restore`; `apply` is the pyinfra operation around it.
The ways to a switch: `api` (binary API), `line` (one run's session), `connector` (as a pyinfra host), `rest` (reading
only). `verify` proves; `bootstrap` is for a switch out of its box.
"""
