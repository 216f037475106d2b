#!/bin/sh
# Turns the bootstrapped tree "$1" into the image of a factory-fresh node. $2: this folder, $3: the folder of the packages
# that a node has from the factory. The build adds /lib/modules, since the kernel is compiled beside this.
set -eu
root=$1 here=$2 packages=$3
cp -a --no-preserve=ownership "$here/rootfs/." "$root/"
chmod 440 "$root/etc/sudoers.d/ops"
chmod 755 "$root/usr/lib/sparkrack-lab/"*
mkdir -p "$root/lab" "$root/lib/modules"
# nvidia-smi comes with the driver's package.
for command in ibdev2netdev dmidecode lspci uname; do
    ln -s /usr/lib/sparkrack-lab/hardware "$root/usr/local/bin/$command"
done
for command in ethtool dcb ib_write_bw; do
    ln -s "/usr/lib/sparkrack-lab/$command" "$root/usr/local/bin/$command"
done
rm -f "$root"/etc/ssh/ssh_host_*
mkdir "$root/tmp/factory"
cp "$packages"/* "$root/tmp/factory/"
chroot "$root" sh -eu <<'EOF'
dpkg --install --force-unsafe-io /tmp/factory/*.deb >/dev/null
rm -r /tmp/factory
useradd --create-home --shell /bin/bash --groups sudo ops
systemctl --quiet enable systemd-networkd.service ssh.service lab.mount lab-seed.service lab-wires.service \
    lab-vlans.service lab-booted.service
# Installed, since netplan can write for it; what runs is networkd.
systemctl --quiet disable NetworkManager.service NetworkManager-dispatcher.service \
    NetworkManager-wait-online.service
# The servers of Debian cannot be reached; a rack that declares its own servers enables it.
systemctl --quiet disable systemd-timesyncd.service
# The role watch enables them where rack.yaml declares it. With their defaults they listen at all addresses.
systemctl --quiet disable prometheus.service prometheus-alertmanager.service prometheus-node-exporter.service
# A node has no console that takes a login, no disk that wears; its fabric is down at the first boot, for which
# wait-online would wait two minutes; iperf3 listens only where a test asks it to.
systemctl --quiet mask getty@.service serial-getty@.service console-getty.service \
    e2scrub_reap.service e2scrub_all.timer fstrim.timer man-db.timer dpkg-db-backup.timer \
    systemd-networkd-wait-online.service iperf3.service
EOF
# Generators of units that a node does not have: each daemon-reload starts all of them, for half of its CPU time.
mkdir -p "$root/etc/systemd/system-generators"
for unused in debug getty gpt-auto hibernate-resume rc-local run ssh system-update sysv tpm2; do
    ln -s /dev/null "$root/etc/systemd/system-generators/systemd-$unused-generator"
done
# The only source of packages is the lab's own; the first boot names it.
rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* \
    "$root"/usr/share/doc/* "$root"/usr/share/locale/*
: > "$root/etc/machine-id"
