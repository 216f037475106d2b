# shellcheck shell=sh
# shellcheck disable=SC2163 # the variable holds NAME=VALUE, which is to be exported
@HEADER@
# Exports the variables that services and containers get to every login shell. Nothing in that file is executed.
if [ -r @ENV@ ]; then
    while IFS= read -r _sparkrack || [ -n "$_sparkrack" ]; do
        case ${_sparkrack%%=*} in
            '' | [0-9]* | *[!A-Za-z0-9_]*) continue ;;
        esac
        case $_sparkrack in
            *=*) export "$_sparkrack" ;;
        esac
    done < @ENV@
    unset _sparkrack
fi
