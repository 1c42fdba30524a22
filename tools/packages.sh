#!/usr/bin/env bash
# Installs the Debian packages in its arguments that are not installed.
set -euo pipefail
missing=()
for p in "$@"; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ]; then
	echo "missing Debian packages: run  sudo apt-get install ${missing[*]}" >&2
	exit 1
fi
# What a killed run left unfinished comes first; another run may hold the lock; a
# mirror may fail once.
export DEBIAN_FRONTEND=noninteractive
dpkg --configure -a || true
options=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
apt-get update "${options[@]}"
apt-get install -y --no-install-recommends "${options[@]}" "${missing[@]}" >/dev/null
