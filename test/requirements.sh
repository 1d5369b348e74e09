#!/usr/bin/env bash
# What the tests need beside Go: Python 3 that can make virtual environments. The
# AWS API stand-in moto is installed into one by the tests themselves.
set -euo pipefail
command -v python3 >/dev/null || need=python3
python3 -c 'import ensurepip, venv' 2>/dev/null || need="${need:-} python3-venv"
[ -z "${need:-}" ] && exit 0
command -v apt-get >/dev/null || { echo "the tests need: $need" >&2; exit 1; }
echo "installing $need"
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq $need >/dev/null
