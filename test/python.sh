#!/usr/bin/env bash
# The Python package: its wheel is built, checked by mypy and tested, with the Python that
# PYTHON names. With --slow: the tests that need JAX, Orbax and other frameworks.
# Everything that it installs is in the user's cache directory; the tree stays clean.
set -euo pipefail
cd "$(dirname "$0")/../python"
source=$PWD
slow=${1:-}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/curfew-test
python=${PYTHON:-python3}
requirements=tests/requirements${slow:+-slow}.txt
version=$("$python" -c 'import platform; print(platform.python_version())')
venv=$cache/python-$version-$(cat tests/requirements*.txt | sha256sum | head -c 12)${slow:+-slow}

work=$(mktemp -d)
fresh=
trap 'rm -rf "$work" $fresh' EXIT

if [ ! -e "$venv" ]; then
	mkdir -p "$cache"
	# Made in a temporary directory and moved into place, so that several may do it at once.
	fresh=$(mktemp -d "$cache/python-new-XXXXXX")
	"$python" -m venv "$fresh"
	"$fresh/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
	if [ -n "$slow" ]; then
		"$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r tests/requirements-source.txt
	fi
	mv -T "$fresh" "$venv" 2>/dev/null || [ -e "$venv" ]
fi
python=$venv/bin/python

mkdir "$work/source"
cp -r pyproject.toml README.md curfew "$work/source"
"$python" -m build --no-isolation --wheel --outdir "$work" "$work/source" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work/installed" "$work"/*.whl

if [ -z "$slow" ] && "$python" -c 'import mypy' 2>/dev/null; then
	"$python" -m mypy --cache-dir "$cache/mypy" --config-file pyproject.toml curfew
fi
# Not from the source folder, whose package would stand before the installed one.
cd "$work"
export PYTHONPATH=$work/installed PYTHONDONTWRITEBYTECODE=1
"$python" -m pytest -p no:cacheprovider -c "$source/pyproject.toml" --rootdir "$source" ${slow:+-m slow} "$source/tests"
