# shellcheck shell=sh
# shellcheck disable=SC2086 # the second arguments are patterns
# shellcheck disable=SC1007 # was= is empty on purpose
# shellcheck disable=SC2317 # not every role asks for all
# shellcheck disable=SC2254 # the words are patterns
E=/etc
R=/var/lib/sparkrack/before/etc
S=/etc/systemd/system
known=/var/lib/sparkrack/before
if [ -d "$R" ]; then echo "record yes"; else echo "record no"; fi
there() { [ -e "$1" ] || [ -L "$1" ]; }
same() {
    [ "$(stat -c '%f %u:%g' -- "$1")" = "$(stat -c '%f %u:%g' -- "$2")" ] || return 1
    if [ -L "$1" ]; then [ "$(readlink -- "$1")" = "$(readlink -- "$2")" ]; return; fi
    [ ! -f "$1" ] || cmp -s -- "$1" "$2"
}
judge() {
    was=
    case $2 in "$E"/*) was=$R/${2#"$E"/} ;; esac
    if [ -n "$was" ] && there "$was"; then
        if ! there "$2"; then echo "$1 missing $2"; elif ! same "$2" "$was"; then echo "$1 changed $2"; fi
    elif there "$2"; then
        echo "$1 new $2"
    fi
}
each() {
    kind=$1
    shift
    for pattern; do
        for path in $pattern; do judge "$kind" "$path"; done
        case $pattern in "$E"/*) ;; *) continue ;; esac
        for was in "$R"/${pattern#"$E"/}; do
            path=$E/${was#"$R"/}
            there "$path" || judge "$kind" "$path"
        done
    done
}
masks() {
    for pattern; do
        for path in "$S"/$pattern; do
            if [ -L "$path" ] && [ "$(readlink -- "$path")" = /dev/null ]; then judge mask "$path"; fi
        done
    done
}
folders() { for path; do [ ! -d "$path" ] || echo "folder new $path"; done; }
units() {
    # Not those that start or end: a timer's service would be in the plan by chance, and gone when it is carried out.
    states=active,reloading,failed
    systemctl list-units --all --plain --no-legend "--state=$states" "$@" | while read -r unit _; do
        echo "unit now $unit"
    done
}
packages() {
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2> /dev/null | while read -r state name; do
        [ "$state" = installed ] || continue
        if [ ! -e "$known/packages" ]; then echo "package unknown $name"
        elif ! grep -qxF -- "$name" "$known/packages"; then echo "package new $name"; fi
    done
}
holds() {
    apt-mark showhold | while read -r name; do
        for pattern; do
            case $name in
                $pattern)
                    if [ ! -e "$known/holds" ]; then echo "hold unknown $name"
                    elif ! grep -qxF -- "$name" "$known/holds"; then echo "hold new $name"; fi
                    break ;;
            esac
        done
    done
}
kernel() {
    [ -e "$known/sysctl" ] || return 0
    sysctl -a 2> /dev/null | grep -E -- "^($1) = " | while read -r key _ now; do
        old=$(sed -n "s/^$key = //p" "$known/sysctl")
        [ -z "$old" ] || [ "$old" = "$now" ] || echo "sysctl $key $now $old"
    done
}
[ ! -e /var/lib/sparkrack/removing/@ROLE@ ] || echo "pending yes @ROLE@"
@QUESTIONS@
