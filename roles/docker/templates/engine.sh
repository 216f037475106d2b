# shellcheck shell=sh
# shellcheck disable=SC2086 # an id is hexadecimal digits
found() { p=$(command -v "$1") || return 0; printf '%s %s\n' "$1" "$p"; }
found dockerd; found nvidia-ctk
command -v dockerd >/dev/null || LC_ALL=C apt-cache policy @PACKAGES@ |
awk '/^[^ ]/ {n = $1} /^  Candidate: [^(]/ {sub(/:$/, "", n); print "candidate", n}'
[ ! -s /var/lib/docker/swarm/docker-state.json ] || echo 'swarm yes'
if [ -e @CONFIG@ ] || [ -L @CONFIG@ ]; then printf 'stat '; stat -c '%a:%U:%G:%F' @CONFIG@ || exit 9; fi
pid=
for p in $(cat /run/docker.pid 2>/dev/null; echo; cat @CGROUPS@/system.slice/docker.service/cgroup.procs 2>/dev/null)
do case "$(cat "/proc/$p/comm" 2>/dev/null)" in dockerd) pid=$p; break;; esac; done
[ -n "$pid" ] || exit 0
read -r g < "/proc/$pid/cgroup" || exit 9
printf 'cgroup %s\n' "$g"
printf 'command '; base64 -w0 < "/proc/$pid/cmdline" || exit 9; echo
id=$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^INVOCATION_ID=//p') || exit 9
case "$id" in *[!0-9a-f]*|'') exit 0;; esac
printf 'start %s\n' "$id"
[ ! -e @RUN@/docker.$id ] || { printf 'with '; base64 -w0 < @RUN@/docker.$id || exit 9; echo; }
