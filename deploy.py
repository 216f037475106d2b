"""Bring the rack to its declared state. A table of contents: the operations are in roles/ and switch/."""

from pyinfra.context import host

from core.ops.apply_role import apply_role, is_plain_pyinfra
from roles.preflight.apply import check_rack_lock

# One literal call a line: pyinfra tells operations apart by their line and orders them by it. The order, and why it is
# this one, stands in roles/registry.py.
# Without the head node the run would not see its lock; `sparkrack apply` holds that itself and leaves this out.
if is_plain_pyinfra():
    check_rack_lock(rack=host.data.rack)
apply_role("preflight")
apply_role("switch")
apply_role("access")
apply_role("time")
apply_role("driver")
apply_role("memory")
apply_role("blackbox")
apply_role("docker")
apply_role("lossless")
apply_role("fabric")
apply_role("rdma")
apply_role("images")
apply_role("models")
apply_role("serving")
apply_role("watch")
