# shellcheck shell=sh
# The servers of each daemon that runs, after its unit and the exit status of the question.
# A daemon that does not run is not asked: timedatectl would start it.
ask() {
    systemctl is-active --quiet "$1" || return 0
    unit=$1
    shift
    answer=$(timeout 10 "$@" 2>&1) && code=0 || code=$?
    echo "$unit $code"
    printf '%s\n' "$answer"
}
ask systemd-timesyncd.service timedatectl show-timesync --all \
    --property=LinkNTPServers --property=SystemNTPServers --property=FallbackNTPServers
ask chrony.service chronyc -c -N sources -a
