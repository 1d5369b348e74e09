#!/usr/bin/env bash
# Runs every fuzz target of the module for a time each: fuzz.sh 5s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5s}
count=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz runs one target. Go's fuzzer now and then fails with nothing but "context
# deadline exceeded" when the time runs out in the middle of an input; that is no
# finding, and the target is run again. A finding names its failing input.
fuzz() {
  local attempt
  for attempt in 1 2 3; do
    go test "./$1" -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10x >"$log" 2>&1 && return 0
    grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic|hung' "$log" || return 1
    echo "  the time ran out within an input; again ($attempt)"
  done
  return 1
}

while IFS=: read -r file target; do
  echo "fuzz $target in $(dirname "$file")"
  fuzz "$(dirname "$file")" "$target" || { cat "$log"; exit 1; }
  count=$((count + 1))
done < <(git grep -oE 'func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed 's/func //')
[ "$count" -gt 0 ] || { echo "no fuzz target found"; exit 1; }
echo "$count fuzz targets passed"
