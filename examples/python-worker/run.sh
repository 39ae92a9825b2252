#!/usr/bin/env bash
# Installs the SDK into a virtual environment beside this file, once, and runs the worker. PYTHON names another interpreter that has it.
set -euo pipefail
cd "$(dirname "$0")"

if [ -z "${PYTHON:-}" ]; then
  PYTHON=.venv/bin/python
  if [ ! .venv/installed -nt requirements.txt ]; then # not there, of before, or cut off half way
    echo "installing the SDK into $PWD/.venv" >&2
    python3 -m venv --clear .venv
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
    touch .venv/installed
  fi
fi
exec "$PYTHON" worker.py
