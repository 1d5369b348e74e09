#!/usr/bin/env bash
# What the tests need beside Go: Python 3 that can make virtual environments, into
# which the tests install the AWS API stand-in moto themselves, and the binaries of
# a PostgreSQL server, Prometheus, VictoriaMetrics and OpenSSH's server, which the
# tests start in temporary directories.
set -euo pipefail
need=
command -v python3 >/dev/null || need+=" python3"
python3 -c 'import ensurepip, venv' 2>/dev/null || need+=" python3-venv"
command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || need+=" postgresql"
command -v prometheus >/dev/null || need+=" prometheus"
command -v ssh-keygen >/dev/null || need+=" openssh-client"
command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || need+=" openssh-server"
command -v victoria-metrics >/dev/null || need+=" victoria-metrics"
for program; do # what one suite needs besides, by its package's name
	command -v "$program" >/dev/null || need+=" $program"
done
[ -z "$need" ] && exit 0
command -v apt-get >/dev/null || { echo "the tests need:$need" >&2; exit 1; }
echo "installing$need"
apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $need >/dev/null
