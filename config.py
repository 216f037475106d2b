"""pyinfra's own settings for this project."""

from pyinfra.context import config

config.REQUIRE_PYINFRA_VERSION = ">=3.10,<4"
# One host that fails stops the run for all: half a changed rack is harder to understand than one that waits.
config.FAIL_PERCENT = 0
