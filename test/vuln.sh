#!/usr/bin/env bash
# Known vulnerabilities of what the binary calls. Where the database cannot be
# reached that is said, and is no failure; a finding is.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
go tool -modfile=tools/go.mod govulncheck ./... >"$out" 2>&1 || status=$?
cat "$out"
case $status in
  0) ;;
  3) exit 3 ;;
  *)
    grep -qE 'dial tcp|no such host|connection refused|fetching vulnerabilities|proxyconnect|i/o timeout|Forbidden|HTTP GET' "$out" || exit "$status"
    echo "the vulnerability database cannot be reached from here: not checked"
    ;;
esac
