#!/usr/bin/env bash
# Makes .venv with the project in it: `venv.sh run`, or `venv.sh dev` for the tools and tests too.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=venv
. ops/services/common.sh

python=${PYTHON:-python3}
has "$python" || die "there is no $python; install Python 3.11 or later, or name one: make PYTHON=python3.12"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || die "$python is Python $version and this needs 3.11 or later; name another one: make PYTHON=python3.12"

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    # Debian keeps what a virtual environment needs in a package of its own.
    "$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install "python$version-venv" </dev/null \
        || die "$python cannot make virtual environments; install its venv package"
    say "making .venv with Python $version"
    "$python" -m venv --clear .venv
fi

pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check --no-input)
if [ "$1" = dev ]; then
    say "installing stream-dedup with the tools and tests"
    # Python 3.11 brings a pip that does not know dependency groups yet.
    "${pip[@]}" install --upgrade 'pip>=25.1'
    "${pip[@]}" install --editable . --group dev
else
    say "installing stream-dedup"
    "${pip[@]}" install --editable .
fi
touch .venv/run.stamp ".venv/$1.stamp"
