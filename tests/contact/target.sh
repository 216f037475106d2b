#!/bin/sh
# Process 1 of one node, in namespaces of its own (mount, pid, uts, ipc): the common root file system as the first-boot
# wizard leaves a node, and sshd on a loopback address. When it ends, the kernel ends everything else of it.
# $1: the common root, read only. $2: the node's folder, with `seed` (files of its own), `password` and `name`.
# $3: its address. $4: its port.
set -eu
root=$1 folder=$2 address=$3 port=$4
hostname "$(cat "$folder/name")"
mkdir -p "$folder/tree" "$folder/memory"
mount -t tmpfs -o mode=755 tmpfs "$folder/memory"
mkdir "$folder/memory/upper" "$folder/memory/work"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$folder/memory/upper,workdir=$folder/memory/work" "$folder/tree"
cd "$folder/tree"
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs run
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
# The image brings the user that other tests need; a node from its box has none of ours.
chroot . userdel -r ops 2>/dev/null
rm -f etc/sudoers.d/ops
chroot . useradd --create-home --shell /bin/bash --groups sudo nvidia
printf 'nvidia:%s\n' "$(cat "$folder/password")" | chroot . chpasswd
hostname > etc/hostname
# What systemd would do, as far as it is asked for.
cat > usr/local/bin/hostnamectl <<'END'
#!/bin/sh
[ "$1" = set-hostname ] && hostname "$2" && echo "$2" > /etc/hostname
END
cat > usr/local/bin/systemctl <<'END'
#!/bin/sh
case "$*" in
"try-restart systemd-journald.service") cat /etc/machine-id > /run/journal-of; exit ;;
esac
[ "$*" = "try-reload-or-restart ssh.service" ] && kill -HUP 1
END
chmod 755 usr/local/bin/hostnamectl usr/local/bin/systemctl
cp -a "$folder/seed/." .
chown -R 0:0 etc
chroot . ssh-keygen -q -A
touch "$folder/made"
# sshd from 9.8 on refuses a client that failed to log in a few times; a test may want that.
penalties=no
[ ! -e "$folder/penalties" ] || penalties="crash:90 authfail:5 min:15"
exec chroot . /usr/sbin/sshd -D -o "PerSourcePenalties=$penalties" -E /var/log/sshd.log -o LogLevel=VERBOSE -o "ListenAddress=$address" -p "$port"
