# shellcheck shell=sh
# The text of `sh -c`.
# FOLDER SECONDS COMMAND...: runs a measuring tool in the container of a unit, with the key of the API if it has one.
# The tools read OPENAI_API_KEY. vLLM has its key in VLLM_API_KEY, SGLang in a file of options.
set -eu
folder=$1 limit=$2 options=/run/sparkrack/key.yaml
shift 2
echo $$ > "$folder/pid"
if [ -n "${VLLM_API_KEY:-}" ]; then
    export OPENAI_API_KEY="$VLLM_API_KEY"
elif [ -e "$options" ]; then
    OPENAI_API_KEY=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).read().partition(":")[2]))' "$options")
    export OPENAI_API_KEY
fi
exec timeout -k 10 "$limit" "$@" > "$folder/log" 2>&1
