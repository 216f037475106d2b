# shellcheck shell=sh
[ ! -d @FOLDER@ ] || stat -c "folder %a %U:%G" @FOLDER@ || exit 9
[ ! -x @NGINX@ ] || echo nginx
for file in @MARKS@; do
[ ! -e "$file" ] || echo "pending ${file##*/}"
done
for file in @RUN@/*.closed; do
[ ! -e "$file" ] || { file=${file##*/}; echo "closed ${file%.closed}"; }
done
if [ -f @CERTIFICATE@ ]; then
command -v openssl >/dev/null || exit 9
own=$(openssl pkey -in @CERTIFICATE@ -pubout -passin pass: 2>/dev/null) || own=
there=$(openssl x509 -in @CERTIFICATE@ -noout -pubkey 2>/dev/null) || there=
[ -z "$own" ] || [ "$own" != "$there" ] || echo "certificate $(openssl x509 -in @CERTIFICATE@ | base64 -w0)"
fi
