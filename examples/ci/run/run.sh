#!/bin/sh
# Runs a command by `curfew ci run` and ends with its exit code. The environment says what:
# RUN is the command, FILE the session file, CLOUD and GPU where and on what it runs (empty: as the
# file or curfew.yaml says), TIMEOUT how long it may take, ARTIFACTS the paths that are copied back,
# one a line, and NAME the session's name (empty: one that no other run has).
set -eu
set -- ci run --timeout "$TIMEOUT"
[ -z "${FILE:-}" ] || set -- "$@" --file "$FILE"
[ -z "${CLOUD:-}" ] || set -- "$@" --cloud "$CLOUD"
[ -z "${GPU:-}" ] || set -- "$@" --gpu "$GPU"
[ -z "${NAME:-}" ] || set -- "$@" --name "$NAME"
while IFS= read -r path; do
    [ -z "$path" ] || set -- "$@" --artifacts "$path"
done <<PATHS
${ARTIFACTS:-}
PATHS
exec curfew "$@" -- sh -c "$RUN" </dev/null
