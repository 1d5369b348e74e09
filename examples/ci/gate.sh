#!/bin/sh
# Asks `curfew gate` about every job file that differs from the commit BASE, one JSON
# document each, and ends with the gravest exit code of them. Budgets, approvers and
# limits are those of BASE: a change cannot raise its own.
#
#   gate.sh BASE [FLAGS OF curfew gate]
#
# JOBS names the files as git does (default: jobs/*.yaml and jobs/*.yml, in folders below
# as well). KEY names the change: a file that is asked about again under it is one run,
# and holds its money once.
# CURFEW_DATABASE_URL has to be set: without the state that all runs share, a check would
# reserve nothing and pass.
set -eu
base=$1
shift
if [ -z "${CURFEW_DATABASE_URL:-}" ]; then
    echo "gate.sh: CURFEW_DATABASE_URL is empty; a run for a fork gets no secrets: a person with write access pushes the branch to this repository" >&2
    exit 2
fi

config=$(mktemp)
trap 'rm -f "$config"' EXIT
git show "$base:curfew.yaml" >"$config"
files=$(git -c core.quotePath=false diff --name-only --diff-filter=d "$base...HEAD" -- "${JOBS:-jobs/*.yaml}" "${JOBS:-jobs/*.yml}")

# What comes first in this list wins: a mistake, an error, a denial, a part that is
# missing, a held job.
gravest() {
    for code in 2 1 4 5 3; do
        if [ "$1" -eq "$code" ] || [ "$2" -eq "$code" ]; then
            echo "$code"
            return
        fi
    done
    [ "$1" -ne 0 ] && echo "$1" || echo "$2"
}

worst=0
while IFS= read -r file; do
    [ -n "$file" ] || continue
    code=0
    curfew gate "$file" --config "$config" -o json ${KEY:+--key "$KEY $file"} "$@" </dev/null || code=$?
    case $code in
    0) echo "$file: allowed" ;;
    3) echo "$file: waits for an approval; then run this again" ;;
    4) echo "$file: denied" ;;
    *) echo "$file: curfew ended with $code" ;;
    esac >&2
    worst=$(gravest "$worst" "$code")
done <<FILES
$files
FILES
exit "$worst"
