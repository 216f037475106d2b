# shellcheck shell=sh
# What a node has for sending and receiving journals, in lines: a subject, a name, a value.
folder=/etc/sparkrack/blackbox
yes_or_no() { if [ "$2" = yes ]; then printf '%s yes\n' "$1"; else printf '%s no\n' "$1"; fi; }
present() { if [ -x "$2" ]; then yes_or_no "$1" yes; else yes_or_no "$1" no; fi; }
present "upload program" /usr/lib/systemd/systemd-journal-upload
if command -v openssl > /dev/null; then yes_or_no "openssl program" yes; else yes_or_no "openssl program" no; fi
for n in upload receive netconsole netconsole_receive; do
    if [ -e "/run/sparkrack/blackbox-$n.pending" ]; then yes_or_no "$n pending" yes; else yes_or_no "$n pending" no; fi
done
if [ -e "$folder/node.key" ]; then
    printf 'key permissions %s\n' "$(stat -c '%a:%U:%G' "$folder/node.key")"
    # The public half; the private one never leaves the node.
    if command -v openssl > /dev/null; then
        printf 'key public %s\n' "$(openssl pkey -in "$folder/node.key" -pubout -outform DER 2> /dev/null < /dev/null | base64 -w 0)"
    fi
fi
