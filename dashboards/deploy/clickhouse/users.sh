#!/bin/sh
# Makes the users of the store with their rights, or updates them: PASSWORD_OWNER,
# PASSWORD_WRITER, PASSWORD_PAGE and PASSWORD_GRAFANA are their passwords. The server is
# CLICKHOUSE_HOST; CLICKHOUSE_USER, with CLICKHOUSE_PASSWORD, must be able to manage access there.
set -eu
here=$(dirname "$0")

ask() { clickhouse-client --host "$CLICKHOUSE_HOST" --user "$CLICKHOUSE_USER" --multiquery; }

# user NAME PASSWORD: the server only gets the hash, in hexadecimal digits that need no quoting.
user() {
  test -n "$2" || { echo "users: $1 has no password" >&2; exit 1; }
  hash=$(printf %s "$2" | sha256sum | cut -d ' ' -f 1)
  {
    echo "CREATE USER IF NOT EXISTS $1 IDENTIFIED WITH sha256_hash BY '$hash';"
    echo "ALTER USER $1 IDENTIFIED WITH sha256_hash BY '$hash';"
    cat "$here/$1.sql"
  } | ask
}

tries=0
until echo "SELECT 1;" | ask >/dev/null; do
  tries=$((tries + 1))
  test "$tries" -lt "${TRIES:-60}" || { echo "users: $CLICKHOUSE_HOST does not answer" >&2; exit 1; }
  sleep 2
done
user store_owner "$PASSWORD_OWNER"
user store_writer "$PASSWORD_WRITER"
user store_page "$PASSWORD_PAGE"
user grafana "$PASSWORD_GRAFANA"
