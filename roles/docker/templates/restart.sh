# shellcheck shell=sh
# shellcheck disable=SC2174 # the folder above is /run
# shellcheck disable=SC2086 # an id is hexadecimal digits
# shellcheck disable=SC2015 # both parts are conditions
@UNUSED@
answers() { i=0; until timeout 10 docker -H unix:///run/docker.sock version >/dev/null 2>&1; do
i=$((i + 1)); [ "$i" -lt 30 ] || return 1; sleep 1; done; }
up() { systemctl reset-failed docker.service docker.socket 2>/dev/null || true
timeout @SECONDS@ systemctl restart docker.service && answers; }
mkdir -p -m 700 @RUN@
systemctl daemon-reload
if up; then
id=$(systemctl show -p InvocationID --value docker.service)
[ -e @RUN@/docker.$id ] || { echo 'docker runs, but @DROPIN@ is not heeded' >&2; exit 1; }
find @RUN@ -maxdepth 1 -name 'docker.*' ! -name "docker.$id" -delete
exit 0
fi
why=$(journalctl -u docker.service -t dockerd -n 60 -o cat 2>/dev/null |
grep -iE 'fail|error|fatal' | tail -n 1 | cut -c1-400)
echo "docker does not start with this daemon.json: ${why:-journalctl -u docker says more}" >&2
[ -e @OLD@ ] && ! cmp -s @OLD@ @CONFIG@ || { echo 'there is no older daemon.json to go back to; what others wrote is in /var/backups/sparkrack' >&2; exit 1; }
if [ -s @OLD@ ]; then back=$(mktemp /etc/docker/.daemon.json.XXXXXX); trap 'rm -f "$back"' EXIT
cat @OLD@ > "$back"; chmod --reference=@CONFIG@ "$back"; sync "$back"; mv -fT "$back" @CONFIG@
else rm -f @CONFIG@; fi
sync /etc/docker
if up; then echo 'the old daemon.json is back, and docker runs with it' >&2
else echo 'the old daemon.json is back, and docker does not start with it either' >&2; fi
rm -f @KEPT@
exit 1
