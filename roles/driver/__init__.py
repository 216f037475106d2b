"""Driver: a node has the NVIDIA driver and kernel that rack.yaml declares, and nothing moves them by itself.

Nodes drift apart by updates nobody ordered: apt, unattended-upgrades, PackageKit, the DGX dashboard and the OTA each
replace driver or kernel, and one odd node spoils every run of the rack. So both are installed at their declared
versions, everything that drives a GPU or a container is held, and every timer or service that upgrades by itself is
masked. What this role never does: remove a package, replace one major version of the driver by another, or reboot;
that a reboot is needed is said, and the proof fails until it was done. fwupd and NVIDIA's OTA started by hand do not
ask apt.
"""
