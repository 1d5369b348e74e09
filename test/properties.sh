#!/usr/bin/env bash
# Every property test, with so many draws each from a seed: properties.sh CASES [SEED].
# Without a seed it takes a random one and prints it. A failure is drawn again by the same
# seed and number, or by the command that rapid prints.
set -euo pipefail
cd "$(dirname "$0")/.."
cases=${1:?"CASES"} seed=${2:-$((RANDOM * 32768 + RANDOM + 1))}
echo "properties: $cases cases of each, SEED=$seed"
# The tests that draw: those whose body names rapid.
tests=$(git ls-files '*_test.go' | xargs grep -l '"pgregory.net/rapid"' | xargs awk '
	/^func / { name = ""; if (match($0, /^func Test[A-Za-z0-9_]*/)) name = substr($0, 6, RLENGTH - 5) }
	/rapid\.(Check|MakeCheck)\(/ && name != "" { folder = FILENAME; sub(/\/[^\/]*$/, "", folder); print folder, name }' | sort -u)
failed=()
while read -r folder; do
	names=$(awk -v f="$folder" '$1 == f { print $2 }' <<<"$tests" | paste -sd'|')
	RAPID_CHECKS=$cases RAPID_SEED=$seed go test -count=1 -timeout 0 "./$folder" -run "^($names)\$" || failed+=("$folder")
done < <(cut -d' ' -f1 <<<"$tests" | sort -u)
[ ${#failed[@]} -eq 0 ] || { echo "properties: SEED=$seed CASES=$cases fails in: ${failed[*]}" >&2; exit 1; }
