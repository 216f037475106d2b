# shellcheck shell=sh
# What is on the node before the first change; a copy of /etc, and what its packages and kernel say. Made whole or not.
record=/var/lib/sparkrack/before
if [ ! -e "$record" ]; then
    (umask 022; mkdir -p /var/lib/sparkrack)
    rm -rf /var/lib/sparkrack/.before.*
    umask 077
    new=$(mktemp -d /var/lib/sparkrack/.before.XXXXXX)
    late=
    for trace in /etc/sparkrack /usr/local/lib/sparkrack /var/backups/sparkrack; do
        [ ! -e "$trace" ] || late=yes
    done
    if [ -z "$late" ]; then
        cp -a /etc "$new/etc"
        dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' > "$new/packages"
        apt-mark showhold > "$new/holds"
        sysctl -a > "$new/sysctl" 2> /dev/null || true
    fi
    # Of these files alone: a sync of all would wait for a model that is being written.
    find "$new" -type f -exec sync {} +
    mv -T "$new" "$record"
fi
