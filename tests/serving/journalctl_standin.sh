#!/bin/sh
# Stand-in for journalctl KERNEL-LOG SERVICE-LOG OPTION...: the log of the kernel with --dmesg, else that of the service.
case " $* " in
    *" --dmesg "*) [ ! -e "$1" ] || cat "$1" ;;
    *" --output=json "*) [ ! -e "$2" ] || exec python3 "$(dirname "$0")/journal_entries.py" "$2" ;;
    *) [ ! -e "$2" ] || cat "$2" ;;
esac
