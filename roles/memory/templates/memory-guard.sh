#!/bin/bash
# shellcheck disable=SC1007 # armed= is empty on purpose
@HEADER@
# memory-guard FLOOR: ends every container in @SLICE@ when less than FLOOR KiB of memory are available.
set -u
floor=$1
back=$((floor + floor / 4)) # with so much it is armed again at once, with less but enough after @AGAIN@ seconds
slice=@CGROUPS@/@SLICE@
exec {clock}<> <(:) # a pipe that nobody writes to: waiting for it is a sleep without a program

look() { # sets available; it is in the third line
    local text
    read -r -d '' -n 200 text < /proc/meminfo
    [[ $text =~ MemAvailable:\ +([0-9]+)\ kB ]] && available=${BASH_REMATCH[1]}
}

say() { # LEVEL TEXT: to the kernel's log, which outlives a journal that was not written in time, and to the journal
    echo "<$1>sparkrack-memory-guard: $2" > /dev/kmsg
    echo "<$1>$2"
} 2> /dev/null

inhabited() {
    local key value
    while read -r key value; do
        if [[ $key == populated ]]; then [[ $value == 1 ]]; return; fi
    done < "$slice/cgroup.events"
    return 1
} 2> /dev/null

end_containers() {
    local low="$available KiB of memory are available, less than the floor of $floor KiB"
    if [[ ! -e $slice/cgroup.kill ]]; then
        told="$low: there is no @SLICE@ to end anything in"
    elif ! inhabited; then
        told="$low: no container runs in @SLICE@, so nothing was ended"
    elif echo 1 > "$slice/cgroup.kill"; then
        told="$low: ended every container in @SLICE@"
    else
        told="$low: ending the containers in @SLICE@ FAILED"
    fi
} 2> /dev/null

armed=yes fired=0 said=
echo "armed: ends every container in @SLICE@ when less than $floor KiB of memory are available"
while look; do
    if ((available < floor)); then
        if [[ $armed ]] || ((SECONDS - fired >= @AGAIN@)); then
            end_containers
            # The same that ended nothing is told once for each time that memory runs short.
            if [[ $told == *ended\ every* || -z $said ]]; then say 2 "$told"; fi
            armed= fired=$SECONDS said=yes
        fi
    elif [[ ! $armed ]] && ((available >= back || SECONDS - fired >= @AGAIN@)); then
        say 5 "armed again: $available KiB of memory are available"
        armed=yes said=
    fi
    read -r -t @SAMPLE@ -u "$clock" _ || :
done
echo "<2>/proc/meminfo does not tell what is available"
exit 1
