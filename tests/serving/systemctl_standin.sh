#!/bin/sh
# Stand-in for systemctl with one service: the script `command` in the folder that is its first argument. As systemd does,
# it ends what is left of the service when its main process ends, and sends KILL when TERM was not enough for the seconds in
# the file `patience`. The script `stop-command` is ExecStop: it has as many seconds before that.
folder=$1 verb=$2
shift 2

content() { # of a file with one line, without starting a program: this runs twice a second
    value=
    [ ! -e "$folder/$1" ] || read -r value < "$folder/$1"
}

active() {
    if [ ! -e "$folder/pid" ]; then active=inactive
    elif [ -e "$folder/status" ]; then content status; [ "$value" = 0 ] && active=inactive || active=failed
    elif [ -e "$folder/stopping" ]; then active=deactivating
    else active=active
    fi
}

active
case $verb in
start)
    [ "$active" != active ] || exit 0
    [ ! -e "$folder/refuse" ] || { cat "$folder/refuse" >&2; exit 1; }
    rm -f "$folder/pid" # first: without it the service is inactive
    rm -f "$folder/status" "$folder/stopping"
    cat /proc/sys/kernel/random/uuid > "$folder/invocation"
    echo x >> "$folder/starts"
    setsid sh -c '
        setsid sh "$1/command" > "$1/log" 2>&1 < /dev/null &
        echo $! > "$1/pid.new" && mv "$1/pid.new" "$1/pid"
        wait $!
        code=$?
        kill -s KILL -- "-$!" 2> /dev/null
        echo "$code" > "$1/status.new" && mv "$1/status.new" "$1/status"
    ' sh "$folder" > /dev/null 2>&1 < /dev/null &
    while [ ! -e "$folder/pid" ]; do sleep 0.02; done
    ;;
stop)
    case $active in inactive | failed) exit 0 ;; esac
    touch "$folder/stopping"
    group=$(cat "$folder/pid")
    [ -e "$folder/stop-command" ] || kill -s TERM -- "-$group" 2> /dev/null
    content patience
    if [ -e "$folder/stop-command" ] && [ ! -e "$folder/status" ]; then
        timeout -s KILL "$value" sh "$folder/stop-command"
        kill -s TERM -- "-$group" 2> /dev/null
    fi
    tries=0
    while [ ! -e "$folder/status" ] && [ "$tries" -lt $((value * 20)) ]; do sleep 0.05; tries=$((tries + 1)); done
    kill -s KILL -- "-$group" 2> /dev/null
    while [ ! -e "$folder/status" ]; do sleep 0.05; done
    [ -e "$folder/stop-command" ] || echo 0 > "$folder/status"
    ;;
kill) [ ! -e "$folder/pid" ] || kill -s KILL -- "-$(cat "$folder/pid")" ;;
show)
    case $* in
    *SystemState*) content system; echo "SystemState=${value:-running}" ;;
    *)
        echo "ActiveState=$active"
        [ "$active" = failed ] && echo Result=exit-code || echo Result=success
        content status; echo "ExecMainStatus=${value:-0}"
        content invocation; echo "InvocationID=$value"
        content pid; case $active in active | deactivating) echo "MainPID=$value" ;; *) echo "MainPID=0" ;; esac
        ;;
    esac
    ;;
esac
