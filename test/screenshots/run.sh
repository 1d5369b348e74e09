#!/usr/bin/env bash
# Installs what the pictures need (a Chromium and two packages) and takes them: of every report,
# with the argument pages of the pages of the service.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
  command -v apt-get >/dev/null || { echo "the pictures need Chromium" >&2; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi
[ -d node_modules/playwright-core ] || npm ci --silent --no-audit --no-fund
case ${1:-} in
pages) shift && exec node pages.mjs "$@" ;;
*) exec node run.mjs "$@" ;;
esac
