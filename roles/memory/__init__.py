"""Memory: the node never swaps, the kernel reserves memory for itself, containers have a limit, and a guard enforces a
floor.

A GB10 node shares one pool of memory between CPU and GPU. When it runs out while swap is on, the node freezes, ssh
included, instead of killing the process that used too much. So swap is off for every mechanism that could enable it
(live, fstab, units, zram), `vm.min_free_kbytes` is reserved for the kernel, and `vm.overcommit_memory` has the value of
rack.yaml even where another program (kubelet sets 1) has changed it. All containers are in one slice with a limit;
sshd, the network and logins have reserved memory and are protected from the OOM killer. No limit counts the memory of
CUDA. So a guard reads the available memory, and ends all containers below a floor; an allocation faster than its 250 ms
is too fast for it. This role starts no workload and drops no cache: it installs the step that does so at a launch.
"""

from __future__ import annotations

from core.model.role import Role
from roles.memory.adopt import ADOPT
from roles.memory.host_share import check_host_share
from roles.memory.options import MemoryOptions

ROLE = Role(
    __name__,
    title="Memory",
    promise=(
        "swap off permanently; kernel settings; one memory limit over all containers; a guard that ends them "
        "before the node freezes; sshd protected"
    ),
    proof=("`/proc/meminfo`, `findmnt`, `systemctl`, the kernel's cgroups"),
    options=MemoryOptions,
    rules=check_host_share,
    risky=True,
    adopt=ADOPT,
)
