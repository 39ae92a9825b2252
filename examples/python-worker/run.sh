#!/usr/bin/env bash
# Installs the SDK into a virtual environment beside this file, once, and runs the worker. PYTHON names another interpreter that has it.
set -euo pipefail
cd "$(dirname "$0")"

if [ -z "${PYTHON:-}" ]; then
  PYTHON=.venv/bin/python
  if [ ! -x "$PYTHON" ]; then
    python3 -m venv .venv
    "$PYTHON" -m pip install --quiet --no-deps -r requirements.txt
  fi
fi
exec "$PYTHON" worker.py
