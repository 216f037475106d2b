"""Driver: a node has the NVIDIA driver and kernel that rack.yaml declares, and no automatic upgrade changes them.

Automatic updates make nodes differ: apt, unattended-upgrades, PackageKit, the DGX dashboard and the OTA each replace
driver or kernel, and one different node slows every job of the rack. So both are installed at their declared versions,
if any are declared, every package that drives a GPU or a container is held, and every timer or service of automatic
upgrades is masked. The
role never removes a package, replaces one major version of the driver by another, or reboots; it reports that a reboot
is needed, and verify fails until it is done. fwupd and NVIDIA's OTA started by hand do not use apt.
"""

from __future__ import annotations

from core.model.role import Role
from roles.driver.options import DriverOptions

ROLE = Role(
    __name__,
    title="Driver",
    promise=(
        "driver and kernel at the declared version, or as they are, and on hold, every automatic upgrade disabled; "
        "reports that a reboot is needed, never reboots"
    ),
    proof="`apt-mark`, a simulated full upgrade, `systemctl`, `nvidia-smi`",
    options=DriverOptions,
    opt_in=True,
    risky=True,
)
