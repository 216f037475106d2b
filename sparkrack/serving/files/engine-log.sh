# shellcheck shell=sh
# The text of `sh -c`.
# SERVICE CONTAINER PATTERN: prints the arguments and the image ID of the container as JSON, the bytes that the kernel
# keeps for a crash kernel, and the lines of the container's current start that match.
set -eu
state=$(systemctl show --property=ActiveState --value "$1")
start=$(systemctl show --property=InvocationID --value "$1")
[ "$state" = active ] && [ -n "$start" ] || { echo "$1 is ${state:-unknown}, expected active" >&2; exit 1; }
docker inspect --format '[{{json .Args}}, {{json .Image}}]' "$2"
if [ -e /sys/kernel/kexec_crash_size ]; then cat /sys/kernel/kexec_crash_size; else echo 0; fi
lines=$(journalctl --all --no-pager --output=cat "_SYSTEMD_INVOCATION_ID=$start")
printf '%s\n' "$lines" | grep -aE "$3" || [ $? -eq 1 ]
