# with-fabric COMMAND...: becomes COMMAND with the variables of the node's fabric that the pod does not have itself.
set -eu
while IFS= read -r line; do
    case $line in
    '' | '#'*) continue ;;
    esac
    printenv "${line%%=*}" >/dev/null || export "${line%%=*}=${line#*=}"
done <@FABRIC@
exec "$@"
