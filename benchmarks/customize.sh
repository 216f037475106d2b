#!/bin/sh
# Turns the bootstrapped tree "$1" into what every target is from the factory.
set -eu
root=$1
chroot "$root" useradd --uid 1000 --create-home --shell /bin/bash ops
printf 'ops ALL=(ALL) NOPASSWD: ALL\n' > "$root/etc/sudoers.d/ops"
chmod 440 "$root/etc/sudoers.d/ops"
rm -f "$root"/etc/ssh/ssh_host_*
# DGX OS is shipped with RDMA turned off in this file on some sites (reported); each tool has to comment it out.
printf 'NCCL_IB_DISABLE=1\nNCCL_DEBUG=WARN\n' > "$root/etc/nccl.conf"
# No systemd runs in a target. This stands in for the two things that are asked of it, for all tools alike.
cat > "$root/usr/local/bin/systemctl" <<'EOF'
#!/bin/sh
case "$*" in
daemon-reload)
    limit=8388608
    for file in /etc/systemd/system.conf.d/*.conf; do
        [ -e "$file" ] || continue
        while read -r line; do
            case $line in DefaultLimitMEMLOCK=*) limit=${line#*=} ;; esac
        done < "$file"
    done
    echo "$limit" > /run/memlock
    ;;
"show --property=DefaultLimitMEMLOCK --value")
    read -r limit 2>/dev/null < /run/memlock || limit=8388608
    echo "$limit"
    ;;
*)
    echo "this stand-in for systemctl does not know: $*" >&2
    exit 1
    ;;
esac
EOF
chmod 755 "$root/usr/local/bin/systemctl"
rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* "$root"/usr/share/locale/*
: > "$root/etc/machine-id"
