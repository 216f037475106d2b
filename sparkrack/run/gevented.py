"""Import this before anything that opens connections: pyinfra's transport is gevent's, which replaces parts of the
standard library. Commands that do not drive pyinfra stay without it."""

import os

from gevent import monkey

monkey.patch_all()

# Before pyinfra is imported, which looks at it once.
os.environ["PYINFRA_PROGRESS"] = "off"

import pyinfra  # noqa: E402

# Operations are told apart by their place in deploy.py, as under pyinfra's own command, and not by counting.
pyinfra.is_cli = True
