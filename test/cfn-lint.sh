#!/usr/bin/env bash
# Checks deploy/cloudformation with cfn-lint, in every region that it knows. What it
# installs is in the user's cache directory.
set -euo pipefail
cd "$(dirname "$0")/.."
version=1.58.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/curfew-test
venv=$cache/cfn-lint-$version
if [ ! -e "$venv" ]; then
	mkdir -p "$cache"
	# Made in a temporary directory and moved into place, so that several may do it at once.
	fresh=$(mktemp -d "$cache/cfn-lint-new-XXXXXX")
	trap 'rm -rf "$fresh"' EXIT
	python3 -m venv "$fresh"
	"$fresh/bin/python" -m pip install --quiet --disable-pip-version-check "cfn-lint==$version"
	mv -T "$fresh" "$venv" 2>/dev/null || [ -e "$venv" ]
fi
# The installed script names the directory in which it was made.
"$venv/bin/python" -c 'import sys; from cfnlint.runner import main; sys.exit(main())' --regions ALL_REGIONS -- deploy/cloudformation/*.yaml
