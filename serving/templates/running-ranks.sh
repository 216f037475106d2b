# shellcheck shell=sh
# shellcheck disable=SC2015 # continue ends the list
# Of each unit with files: what the client of docker in the service of its rank was started with, as the hash that the file
# of arguments has; the containers by name; and the variables of its file that a container does not have. The environment of
# a container has the key, which stays on the node.
set -- @FOLDER@/*.args
[ -e "$1" ] || exit 0
for file in "$@"; do
    unit=${file##*/} unit=${unit%.args}
    members=/sys/fs/cgroup/system.slice/sparkrack-serve-$unit.service/cgroup.procs
    [ -e "$members" ] || continue
    while read -r pid; do
        [ "$(head -z -n 2 "/proc/$pid/cmdline" 2>/dev/null | tr '\0' ' ')" = "docker run " ] || continue
        hash=$(tail -z -n +3 "/proc/$pid/cmdline" | tr '\0' '\n' | sha256sum) && echo "argv $unit ${hash%% *}"
    done < "$members"
done
command -v docker >/dev/null || exit 0
found=$(timeout 10 docker ps --all --filter name=^sparkrack- --format '{{.Names}} {{.State}}' 2>/dev/null) ||
    { echo unknown; exit 0; }
echo "$found" | while read -r name state; do
    unit=${name#sparkrack-} file=@FOLDER@/${name#sparkrack-}.env
    # An empty name is that of no container at all.
    [ -n "$name" ] && [ -e "$file" ] || continue
    echo "container $unit $state"
    own=$(timeout 10 docker inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$name" 2>/dev/null) || continue
    echo "$own" | grep -Fxvf - -- "$file" | sed -n "s/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/env $unit \1/p"
done
