#!/usr/bin/env bash
# Runs every fuzz target of the module for a time each: fuzz.sh 5s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5s}
count=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
while IFS=: read -r file target; do
  echo "fuzz $target in $(dirname "$file")"
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x >"$log" 2>&1 || { cat "$log"; exit 1; }
  count=$((count + 1))
done < <(git grep -oE 'func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/func //')
[ "$count" -gt 0 ] || { echo "no fuzz target found"; exit 1; }
echo "$count fuzz targets passed"
