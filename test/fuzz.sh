#!/usr/bin/env bash
# Runs every fuzz target of the module; together they take so many seconds: fuzz.sh 120
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t targets < <(git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | sed -E 's|/[^/]*:func |:|' | LC_ALL=C sort)
[ "${#targets[@]}" -gt 0 ] || { echo "no fuzz target found"; exit 1; }
each=$((${1:-120} * 1000 / ${#targets[@]}))
[ "$each" -gt 0 ] || { echo "no time for any target"; exit 1; }
each+=ms
cache=$(go env GOCACHE)/fuzz/$(go list -m)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# fuzz runs one target. Go's fuzzer now and then fails with nothing but "context
# deadline exceeded" when the time runs out in the middle of an input; that is no
# finding, and the target is run again. A finding names its failing input.
fuzz() {
  local attempt
  for attempt in 1 2 3; do
    (cd "$1" && "$temp/test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$each" \
      -test.fuzzminimizetime 10x -test.fuzzcachedir "$cache/$1") >"$temp/log" 2>&1 && return 0
    grep -q 'context deadline exceeded' "$temp/log" && ! grep -qE 'Failing input|panic|hung' "$temp/log" || return 1
    echo "  the time ran out within an input; again ($attempt)"
  done
  return 1
}

built=
for target in "${targets[@]}"; do
  dir=${target%%:*} name=${target##*:}
  # One build serves all targets of a package; -fuzz has it count coverage.
  [ "$dir" = "$built" ] || go test -c -fuzz . -o "$temp/test" "./$dir"
  built=$dir
  echo "fuzz $name in $dir for $each"
  fuzz "$dir" "$name" || { cat "$temp/log"; exit 1; }
done
echo "${#targets[@]} fuzz targets passed"
