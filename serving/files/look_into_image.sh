#!/bin/sh
# The same as look_into_image.py, whose text is $0, in an image of which it is not known whether it has Python. Without
# it, nccl and cuda are not asked. llama.cpp's own images have their programs in /app. A program that prints the devices
# on which it computes is devices:NAME.
PATH=$PATH:/app
python=
for word do
    name=${word#*:}
    case $word in
    program:*) command -v "$name" > /dev/null || { echo "the image has no program $name" >&2; exit 1; } ;;
    file:*) [ -e "$name" ] || { echo "the container has no file $name" >&2; exit 1; } ;;
    settings:*)
        [ ! -f "$name" ] || while IFS= read -r line || [ -n "$line" ]; do
            case $line in "" | "#"*) ;; *) printf '%s: %s\n' "$name" "$line" ;; esac
        done < "$name" ;;
    devices:*)
        "$name" --list-devices 2>&1 | grep -q CUDA0 && continue
        echo "$name --list-devices names no CUDA0: it would compute on the CPU" >&2
        exit 1 ;;
    cuda | nccl) python="$python $word" ;;
    esac
done
if [ -n "$python" ] && command -v python3 > /dev/null; then
    # shellcheck disable=SC2086 # words without spaces
    exec python3 -c "$0" $python
fi
