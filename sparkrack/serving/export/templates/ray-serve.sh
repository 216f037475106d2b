#!/usr/bin/env bash
@HEADER@
set -euo pipefail
cluster=$(dirname -- "$0")/@CLUSTER@
command=@COMMAND@
exec ray exec "$cluster" "$command"
