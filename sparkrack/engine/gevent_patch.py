"""Import this before anything that opens connections: pyinfra's transport is gevent's, which replaces parts of the
standard library. Commands that do not drive pyinfra stay without it."""

import os

from gevent import monkey

monkey.patch_all()

# Before pyinfra is imported, which looks at it once.
os.environ["PYINFRA_PROGRESS"] = "off"

import pyinfra  # noqa: E402

# Operations are distinguished by their place in deploy.py, as under pyinfra's own command, and not by counting.
pyinfra.is_cli = True

import inspect  # noqa: E402
from functools import cache, partial  # noqa: E402

from pyinfra.api import arguments, util  # noqa: E402

# For every operation of every host pyinfra walks the call stack for file names and line numbers, and reads the source
# of each frame besides, of which it uses nothing (measured: a third of all our CPU time with 32 hosts).
util.stack = partial(inspect.stack, 0)  # type: ignore[attr-defined]
util.getframeinfo = partial(inspect.getframeinfo, context=0)  # type: ignore[attr-defined]
arguments.all_global_arguments = cache(arguments.all_global_arguments)
