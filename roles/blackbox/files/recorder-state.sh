# shellcheck shell=sh
# The state of the flight recorder in lines: a subject, a name, a value.
if [ -e /run/sparkrack/blackbox-recorder.pending ]; then pending=yes; else pending=no; fi
printf 'recorder pending %s\n' "$pending"
age=absent
if [ -e /var/lib/sparkrack/blackbox/ring ]; then
    written=$(stat -c %Y /var/lib/sparkrack/blackbox/ring) && now=$(date +%s) || exit 9
    age=$((now - written))
fi
printf 'recorder age %s\n' "$age"
python=no
if command -v python3 > /dev/null; then python=yes; fi
printf 'recorder python %s\n' "$python"
