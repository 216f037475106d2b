# shellcheck shell=sh
# Make a silence for each line of matchers, the fifth argument, at the Alertmanager $1, in the name $2 with the comment $3
# for the duration $4, and print its ID. Then end the silences whose IDs follow: the new ones are in their place.
set -eu
command -v amtool > /dev/null || exit 0
url=$1 author=$2 comment=$3 duration=$4 silences=$5
shift 5
printf '%s\n' "$silences" | while read -r matchers; do
    set -f
    # shellcheck disable=SC2086 # a line has several matchers, none of which has a space
    timeout 5 amtool --alertmanager.url="$url" silence add --author="$author" --comment="$comment" --duration="$duration" $matchers < /dev/null
done
[ "$#" -eq 0 ] || timeout 5 amtool --alertmanager.url="$url" silence expire "$@"
