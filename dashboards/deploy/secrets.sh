#!/bin/sh
# Makes the secrets of a deployment, once: passwords (.env), and in the folder secrets an authority
# with the collector's certificate, and tokens for exporters and controllers. Arguments are
# further names and addresses of the collector:
#
#   ./secrets.sh collector.example 192.0.2.10
#
# It refuses to replace anything. The certificate holds for a year: to renew it, or with
# an authority of your own, put collector.pem and collector.key there yourself.
set -eu
umask 077
cd "$(dirname "$0")"
for made in .env secrets; do
  test ! -e "$made" || { echo "secrets.sh: $made exists: remove it to start again" >&2; exit 1; }
done
trap 'test $? = 0 || echo "secrets.sh: failed; it takes OpenSSL 3" >&2' EXIT

names=DNS:localhost,IP:127.0.0.1,DNS:$(uname -n)
for name in "$@"; do
  case $name in
    *:* | *[0-9].[0-9]*.[0-9]*.[0-9]*) names=$names,IP:$name ;;
    *) names=$names,DNS:$name ;;
  esac
done

# Only the owner may enter the folder; containers of another user get their parts of it mounted.
mkdir -p secrets/authority secrets/collector secrets/exporter secrets/controller
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=csigscope authority" \
  -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign \
  -keyout secrets/authority/ca.key -out secrets/authority/ca.pem 2>/dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=csigscope collector" \
  -CA secrets/authority/ca.pem -CAkey secrets/authority/ca.key \
  -addext basicConstraints=critical,CA:FALSE -addext "subjectAltName=$names" -addext extendedKeyUsage=serverAuth,clientAuth \
  -keyout secrets/collector/collector.key -out secrets/collector/collector.pem 2>/dev/null

# token FOLDER: makes a token; the collector only gets its hash.
token() {
  cp secrets/authority/ca.pem "secrets/$1/ca.pem"
  openssl rand -hex 32 >"secrets/$1/token"
  tr -d '\n' <"secrets/$1/token" | sha256sum | cut -d ' ' -f 1
}
printf 'hosts: %s\n' "$(token exporter)" >secrets/collector/tokens
printf 'controller: read %s\n' "$(token controller)" >secrets/collector/clients
chmod 755 secrets/collector secrets/exporter
chmod 644 secrets/collector/* secrets/exporter/*

for variable in CLICKHOUSE_ADMIN_PASSWORD STORE_OWNER_PASSWORD STORE_WRITER_PASSWORD STORE_PAGE_PASSWORD STORE_GRAFANA_PASSWORD GRAFANA_ADMIN_PASSWORD; do
  printf '%s=%s\n' "$variable" "$(openssl rand -hex 24)"
done >.env
echo "made .env and secrets/ for $names"
