#!/bin/sh
# Stand-in for journalctl KERNEL-LOG SERVICE-LOG OPTION...: the log of the kernel with --dmesg, else that of the service.
# The cursor of a line of the kernel's log is its number. Each line is shown with who wrote it: the kernel or, as in a
# journal, the program whose name it begins with.
lines() { if [ -e "$1" ]; then wc -l < "$1"; else echo 0; fi; }
show() { sed -E '/^sparkrack-memory-guard: /!s/^/kernel: /; s/^/1.5 /'; }
for last; do :; done
case " $* " in
    *" --dmesg "*" --lines=1 "*) [ "$(lines "$1")" -eq 0 ] || echo "__CURSOR=$(lines "$1")" ;;
    *" --dmesg "*" --cursor="*) echo "__CURSOR=${last#--cursor=}" ;;
    *" --dmesg "*" --after-cursor="*) tail -n "+$((${last#--after-cursor=} + 1))" "$1" | show ;;
    *" --dmesg "*" --output=short-unix "*) [ ! -e "$1" ] || show < "$1" ;;
    *" --dmesg "*) [ ! -e "$1" ] || cat "$1" ;;
    *" --output=json "*) [ ! -e "$2" ] || exec python3 "$(dirname "$0")/journal_entries.py" "$2" ;;
    *) [ ! -e "$2" ] || cat "$2" ;;
esac
