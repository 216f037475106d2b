#!/bin/sh
# The previous version of a served unit on this node: its files as they were while a completion had proven the unit.
#
#   serve-previous.sh keep UNIT GENERATION      keep the files that are here now
#   serve-previous.sh forget UNIT GENERATION    remove what was kept of every other generation
#   serve-previous.sh list UNIT                 a line for each kept generation: generation, nodes, image, and same, other or
#                                             absent: how the files here compare, or that docker no longer has the image
#   serve-previous.sh begin UNIT                note that files change: the gate refuses until `end`, or until apply has
#                                             written them. A node without files of units needs none
#   serve-previous.sh restore UNIT GENERATION   put the kept files in the place of those here, note that in UNIT.previous until
#                                             apply writes others, and restart coordinator and agent
#   serve-previous.sh end UNIT                  files are whole on each node
#
# A kept version is one file, which gets its name when all of it is on the disk. The lease secret is not in it: all nodes
# share the present one. Exit codes: 0 done, else the reason is on stderr.
set -eu
umask 077
etc=/etc/sparkrack/serve units=/etc/systemd/system folder=/var/lib/sparkrack/serve/previous
verb=$1 unit=$2 kept=$folder/$2.${3:-0}.tar

present() { # the files of the unit here that are kept and put back, a line each
    for file in "$etc/$unit".args "$etc/$unit".env "$etc/$unit".json "$etc/$unit".gate.json "$etc/$unit".key \
        "$etc/$unit".token "$units/sparkrack-serve-$unit".service "$units/sparkrack-serve-$unit-agent".service \
        "$units/sparkrack-serve-$unit-coordinator".service "$units/sparkrack-$unit".slice; do
        [ ! -e "$file" ] || echo "$file"
    done
    # Their names have no spaces, which rack.yaml refuses.
    [ ! -d "$etc/$unit.files" ] || find "$etc/$unit.files" -type f | LC_ALL=C sort
}

same() { # whether the files here have the content of the kept ones
    [ "$(tar -tPf "$1")" = "$(present)" ] || return 1
    for path in $(present); do tar -xPOf "$1" "$path" | cmp -s - "$path" || return 1; done
}

fail() {
    echo "$*" >&2
    exit 1
}

case $verb in
keep)
    [ ! -e "$etc/$unit.pending" ] || fail "files of unit $unit are not whole, $etc/$unit.pending; run sparkrack apply"
    [ -e "$etc/$unit.args" ] || fail "this node has no files of unit $unit; run sparkrack apply"
    mkdir -p "$folder"
    rm -f "$folder/.$unit".?????? # of a node that lost its power meanwhile
    new=$(mktemp "$folder/.$unit.XXXXXX")
    trap 'rm -f "$new"' EXIT
    present | tar -cPf "$new" -T -
    sync "$new"
    mv -f "$new" "$kept"
    sync "$folder"
    ;;
forget)
    [ -e "$kept" ] || fail "generation $3 of unit $unit is not kept"
    for file in "$folder/$unit".*.tar; do [ "$file" = "$kept" ] || rm -f "$file"; done
    ;;
list)
    for file in "$folder/$unit".*.tar; do
        [ -e "$file" ] || continue
        generation=${file#"$folder/$unit."}
        image=$(tar -xPOf "$file" "$etc/$unit.args" | grep -Ex -m 1 'sha256:[0-9a-f]{64}') || image=-
        state=other
        if [ "$image" = - ] || ! docker image inspect "$image" > /dev/null 2>&1; then
            state=absent
        elif same "$file"; then
            state=same
        fi
        nodes=$(tar -xPOf "$file" "$etc/$unit.json" | grep -o '"node": "[^"]*"' | cut -d '"' -f 4 | paste -sd , -)
        echo "${generation%.tar} ${nodes:--} $image $state"
    done
    ;;
begin)
    [ -d "$etc" ] || exit 0
    : > "$etc/$unit.pending"
    sync "$etc"
    ;;
restore)
    tar -tPf "$kept" > /dev/null || fail "$kept cannot be read"
    : > "$etc/$unit.pending"
    present | while IFS= read -r file; do
        tar -tPf "$kept" "$file" > /dev/null 2>&1 || rm -f "$file"
    done
    [ ! -d "$etc/$unit.files" ] || find "$etc/$unit.files" -depth -type d -empty -delete
    (umask 022 && tar -xpPf "$kept") # a container reads the folders that tar makes
    echo "$3" > "$etc/$unit.previous"
    sync
    systemctl daemon-reload
    systemctl restart "sparkrack-serve-$unit-agent.service"
    [ ! -e "$units/sparkrack-serve-$unit-coordinator.service" ] || systemctl restart "sparkrack-serve-$unit-coordinator.service"
    ;;
end)
    rm -f "$etc/$unit.pending"
    ;;
*) fail "unknown verb $verb" ;;
esac
