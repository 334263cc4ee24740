#!/usr/bin/env bash
# Locks what the image is built with (`make lock`): every version, with the hashes of its files.
# requirements.lock is what the program needs, build.lock what makes its wheel.
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=${UV:-.venv/bin/uv}

# Reads requirements and writes a lock file; neither names where packages are taken from.
lock() {
    local output=$1
    shift
    "$uv" pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links \
        --python-version 3.12 --python-platform linux --custom-compile-command 'make lock' \
        --output-file "$output" "$@"
}

lock ops/deploy/requirements.lock pyproject.toml --extra confluent --extra oauth --extra serve
# `requires = ["hatchling>=1.27"]` of the build system, and what that needs in turn.
sed -n '/^\[build-system\]/,/^$/s/^requires = \["\(.*\)"\]$/\1/p' pyproject.toml |
    lock ops/deploy/build.lock -
