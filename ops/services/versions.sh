#!/usr/bin/env bash
# Makes .venv-lowest or .venv-newest: the project with all extras, in the lowest or the newest
# versions of what pyproject.toml asks for itself, and what its tests need.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=versions
. ops/services/common.sh

case ${1-} in
    lowest) resolution=lowest-direct ;;
    newest) resolution=highest ;;
    *) die "say lowest or newest" ;;
esac
venv=.venv-$1
uv=(.venv/bin/uv --quiet)

say "making $venv"
"${uv[@]}" venv --clear --python .venv/bin/python "$venv"
"${uv[@]}" pip compile --resolution "$resolution" --all-extras --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --output-file "$venv/versions.txt" pyproject.toml >/dev/null
# httpx: older test clients of starlette need it.
"${uv[@]}" pip install --python "$venv/bin/python" --constraint "$venv/versions.txt" \
    --requirement "$venv/versions.txt" --editable . \
    httpx httpx2 hypothesis jsonschema packaging pytest pytest-timeout pytest-xdist testcontainers trustme
touch "$venv/stamp"
