#!/bin/sh
# Turns the bootstrapped tree "$1" into the image of a factory-fresh node. $2: this folder, $3: the kernel's module
# folder, $4: the folder of the packages that a node has from the factory.
set -eu
root=$1 here=$2 modules=$3 packages=$4
cp -a --no-preserve=ownership "$here/rootfs/." "$root/"
chmod 440 "$root/etc/sudoers.d/ops"
chmod 755 "$root/usr/lib/sparkrack-lab/"*
mkdir -p "$root/lab" "$root/lib/modules"
cp -a "$modules" "$root/lib/modules/"
# nvidia-smi comes with the driver's package.
for command in ibdev2netdev dmidecode lspci uname; do
    ln -s /usr/lib/sparkrack-lab/hardware "$root/usr/local/bin/$command"
done
ln -s /usr/lib/sparkrack-lab/measure "$root/usr/local/bin/ib_write_bw"
# ethtool in parts: what every run asks is a shell's to answer, as Python takes long to start in a virtual node.
mkdir "$root/usr/lib/sparkrack-lab/python" "$root/usr/lib/sparkrack-lab/shell"
ln -s ../measure "$root/usr/lib/sparkrack-lab/python/ethtool"
ln -s ../hardware "$root/usr/lib/sparkrack-lab/shell/ethtool"
for command in ethtool dcb; do
    ln -s /usr/lib/sparkrack-lab/lossless "$root/usr/local/bin/$command"
done
# Every command of a run is a sudo; what PAM does about its session is a third of what it costs in a virtual node.
printf '@include common-auth\naccount required pam_permit.so\nsession required pam_permit.so\n' > "$root/etc/pam.d/sudo"
rm -f "$root"/etc/ssh/ssh_host_*
mkdir "$root/tmp/factory"
cp "$packages"/* "$root/tmp/factory/"
chroot "$root" sh -eu <<'EOF'
dpkg --install --force-unsafe-io /tmp/factory/*.deb >/dev/null
rm -r /tmp/factory
useradd --create-home --shell /bin/bash --groups sudo ops
# nftables' NAT is not in this kernel; dockerd would stop with TABLE_ADD failed.
update-alternatives --quiet --set iptables /usr/sbin/iptables-legacy
update-alternatives --quiet --set ip6tables /usr/sbin/ip6tables-legacy
systemctl --quiet enable systemd-networkd.service ssh.service lab.mount lab-seed.service lab-wires.service \
    lab-booted.service
# dockerd starts at its first use: eight of them at boot would keep two cores busy for minutes.
systemctl --quiet disable docker.service containerd.service
systemctl --quiet enable docker.socket
# Installed, since netplan can write for it; what runs is networkd.
systemctl --quiet disable NetworkManager.service NetworkManager-dispatcher.service \
    NetworkManager-wait-online.service
# None of these does anything for a node without clock, disk wear, console or internet.
systemctl --quiet mask systemd-timesyncd.service systemd-networkd-wait-online.service e2scrub_reap.service \
    e2scrub_all.timer dpkg-db-backup.timer fstrim.timer man-db.timer \
    getty@.service serial-getty@.service console-getty.service systemd-pstore.service \
    systemd-hwdb-update.service systemd-journal-flush.service iperf3.service
# A generator costs a process at each boot and each daemon-reload, and these find nothing here.
mkdir -p /etc/systemd/system-generators
for name in systemd-bless-boot systemd-cryptsetup systemd-debug systemd-getty systemd-gpt-auto \
    systemd-hibernate-resume systemd-integritysetup systemd-rc-local systemd-run systemd-ssh \
    systemd-system-update systemd-sysv systemd-tpm2 systemd-veritysetup; do
    ln -s /dev/null /etc/systemd/system-generators/$name-generator
done
EOF
# The only source of packages is the lab's own; the first boot names it.
rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* \
    "$root"/usr/share/doc/* "$root"/usr/share/locale/*
: > "$root/etc/machine-id"
