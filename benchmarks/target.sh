#!/bin/sh
# Process 1 of one target, in namespaces of its own (mount, network, pid, uts, ipc). Makes a factory-fresh node of the
# common root file system and becomes its sshd: when that ends, the kernel ends everything else of the target.
# $1: the common root, read only. $2: the target's folder, with `seed` (files of its own) and `tree`. $3: its name.
# $4: its address with prefix length.
set -eu
root=$1 folder=$2 name=$3 address=$4
hostname "$name"
mkdir -p "$folder/upper" "$folder/work" "$folder/tree"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$folder/upper,workdir=$folder/work" "$folder/tree"
cd "$folder/tree"
mount -t proc proc proc
# The machine's memory settings do not belong to a target: a tool that would change them fails instead.
mount --bind proc/sys/vm proc/sys/vm
mount -o remount,bind,ro proc/sys/vm
mount -t tmpfs -o mode=755 tmpfs dev
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 dev/tty c 5 0
mkdir dev/pts
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for stream in stdin:0 stdout:1 stderr:2; do
    ln -s "/proc/self/fd/${stream#*:}" "dev/${stream%:*}"
done
mkdir -p run/sshd
cp -a "$folder/seed/." .
chown -R 1000:1000 home/ops
ip link set lo up
until ip link show mgmt0 >/dev/null 2>&1; do sleep 0.02; done
ip address add "$address" dev mgmt0
ip link set mgmt0 up
exec chroot . /usr/sbin/sshd -D -E /var/log/sshd.log -o LogLevel=VERBOSE
