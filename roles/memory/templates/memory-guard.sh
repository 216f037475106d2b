#!/bin/bash
# shellcheck disable=SC1007 # armed= is empty on purpose
@HEADER@
# memory-guard FLOOR: ends every container in @SLICE@ when less than FLOOR KiB of memory are available. Of several served
# units that run there it ends one first: that which has more than it declares, else that which was started last.
set -u
floor=$1
back=$((floor + floor / 4)) # with so much it is armed again at once, with less but enough after @AGAIN@ seconds
slice=@CGROUPS@/@SLICE@
exec {clock}<> <(:) # a pipe that nothing writes to: waiting for it is a sleep without a program

look() { # sets available; it is in the third line
    local text
    read -r -d '' -n 200 text < /proc/meminfo
    [[ $text =~ MemAvailable:\ +([0-9]+)\ kB ]] && available=${BASH_REMATCH[1]}
}

say() { # LEVEL TEXT: to the kernel's log, which outlives a journal that was not written in time, and to the journal
    echo "<$1>sparkrack-memory-guard: $2" > /dev/kmsg
    echo "<$1>$2"
} 2> /dev/null

inhabited() { # FOLDER of a control group
    local key value
    while read -r key value; do
        if [[ $key == populated ]]; then [[ $value == 1 ]]; return; fi
    done < "$1/cgroup.events"
    return 1
} 2> /dev/null

excess() { # UNIT: sets over, the bytes that its slice has beyond those it declares; the kernel counts none of CUDA there
    local key value takes=
    over=0
    while IFS='=' read -r key value; do
        if [[ $key == Takes && $value =~ ^[0-9]+$ ]]; then takes=$value; fi
    done < "@UNITS@/sparkrack-$1.slice"
    [[ $takes ]] || return
    while read -r key value; do
        if [[ $key == anon || $key == shmem || $key == kernel ]]; then over=$((over + value)); fi
    done < "$slice/sparkrack-$1.slice/memory.stat"
    over=$((over - takes))
} 2> /dev/null

choose() { # sets victim and why where several units run, else victim to nothing
    local folder unit most=0 last= count=0
    victim= why=
    for folder in "$slice"/sparkrack-*.slice; do
        inhabited "$folder" || continue
        unit=${folder##*/sparkrack-} unit=${unit%.slice} count=$((count + 1))
        if [[ ! $last || @MARKS@/$unit/wanted -nt @MARKS@/$last/wanted ]]; then last=$unit; fi
        excess "$unit"
        if ((over > most)); then most=$over victim=$unit why="which has $((over / 1024)) KiB more than it declares"; fi
    done
    if ((count < 2)); then victim=; elif [[ ! $victim ]]; then victim=$last why="which was started last"; fi
}

end_containers() {
    local low="$available KiB of memory are available, less than the floor of $floor KiB"
    choose
    if [[ ! -e $slice/cgroup.kill ]]; then
        report="$low: there is no @SLICE@ to end anything in"
    elif ! inhabited "$slice"; then
        report="$low: no container runs in @SLICE@, so nothing was ended"
    elif [[ $armed && $victim ]] && echo 1 > "$slice/sparkrack-$victim.slice/cgroup.kill"; then
        # When that does not bring memory back, every container follows.
        report="$low: ended every container of unit $victim, $why, in @SLICE@"
    elif echo 1 > "$slice/cgroup.kill"; then
        report="$low: ended every container in @SLICE@"
    else
        report="$low: ending the containers in @SLICE@ FAILED"
    fi
} 2> /dev/null

armed=yes fired=0 reported=
echo "armed: ends every container in @SLICE@ when less than $floor KiB of memory are available"
while look; do
    if ((available < floor)); then
        if [[ $armed ]] || ((SECONDS - fired >= @AGAIN@)); then
            end_containers
            # The same that ended nothing is reported once for each time that memory runs short.
            if [[ $report == *ended\ every* || -z $reported ]]; then say 2 "$report"; fi
            armed= fired=$SECONDS reported=yes
        fi
    elif [[ ! $armed ]] && ((available >= back || SECONDS - fired >= @AGAIN@)); then
        say 5 "armed again: $available KiB of memory are available"
        armed=yes reported=
    fi
    read -r -t @SAMPLE@ -u "$clock" _ || :
done
echo "<2>/proc/meminfo does not tell what is available"
exit 1
