# shellcheck shell=sh
[ -n "${SUDO_USER:-}" ] && t=$(sshd -T) && w=$(printf '%s\n' "$t" | sed -n 's/^authorizedkeysfile //p') || exit 9
set -f
show() { [ ! -f "$2" ] || { c=$(base64 -w0 < "$2") && echo "$1 $2 $c"; } || exit 9; }
for u in "$SUDO_USER" root; do
e=$(getent passwd -- "$u") || exit 9
h=${e%:*}; h=${h##*:}; h=${h%/}
for f in $w; do
case $f in none) continue ;; "%h"/*) f=$h/${f#"%h/"} ;; /*"%u"*) f=${f%%"%u"*}$u${f#*"%u"} ;; esac
case $f in *%*) echo "unread $f "; continue ;; /*) ;; *) f=$h/$f ;; esac
show keys "$f"
done
show config "$h/.ssh/config"
done
