#!/bin/sh
# serve-run.sh FILE: becomes `docker run` with the arguments in FILE, one a line. No shell reads them.
set -eu
[ $# -eq 1 ] || { echo "serve-run: expected one file with arguments" >&2; exit 2; }
file=$1
[ -s "$file" ] || { echo "serve-run: $file is missing or empty; run sparkrack apply" >&2; exit 2; }
set --
while IFS= read -r word; do set -- "$@" "$word"; done < "$file"
exec docker run "$@"
