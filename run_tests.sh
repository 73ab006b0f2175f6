#!/usr/bin/env bash
# Runs the tests: sets up the environment, installs what the tests need, and calls pytest.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$ROOT/.ci/environment.sh"

usage() {
    cat <<'TEXT'
Runs the tests of mytorch, PyTorch included as the oracle.

usage: bash run_tests.sh [--help] [ARGUMENTS OF PYTEST]

  bash run_tests.sh                        everything, in two processes
  bash run_tests.sh tests/optim -k adamw   a part of it; paths are relative to the repository
  bash run_tests.sh -m "not slow"          without processes, trainings, kernels, pretrained models, PyTorch's databases
  bash run_tests.sh -n 0 --pdb             in one process, with the debugger at the first failure

The active environment (venv or conda) is used; without one, .venv is made. The first run installs the
extra "test" of setup.py, PyTorch among it.
TEXT
}

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    usage
    exit 0
fi

cd "$ROOT"
use_environment
install_package test

# Two processes share the cores: BLAS threads beyond that only get in each other's way.
cores=$(getconf _NPROCESSORS_ONLN)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 2 ? cores / 2 : 1))}

say "running the tests"
exec "$PYTHON" -m pytest -n 2 --dist worksteal "$@"
