#!/usr/bin/env bash
# usage: kv-clients.sh FOLDER
# Installs clients of Redis from PyPI and npm into FOLDER, once: nothing outside of it is changed.
set -euo pipefail
folder=$1
python=(redis==8.1.0 valkey==6.2.0)
node=(redis@6.3.1 ioredis@6.0.0 iovalkey@0.4.0)
wanted="${python[*]} ${node[*]}"
[ "$(cat "$folder/installed" 2>/dev/null || true)" != "$wanted" ] || exit 0
for tool in python3 npm; do
    command -v "$tool" >/dev/null || { echo "not installed: $tool" >&2; exit 1; }
done
rm -rf "$folder"
mkdir -p "$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "${python[@]}"
echo '{"private": true}' >"$folder/package.json"
npm install --prefix "$folder" --silent --no-audit --no-fund "${node[@]}"
echo "$wanted" >"$folder/installed"
