# Sourced by train_gpt2.sh and run_tests.sh, with ROOT set: the Python environment, and mytorch in it.

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

supported() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

# Sets ENVIRONMENT and PYTHON: the active environment, else .venv, which is made where it is missing.
use_environment() {
    ENVIRONMENT=${VIRTUAL_ENV:-${CONDA_PREFIX:-}}
    if [ -n "$ENVIRONMENT" ]; then
        PYTHON=$ENVIRONMENT/bin/python
        "$PYTHON" -c '' 2>/dev/null ||
            fail "the active environment $ENVIRONMENT has no working bin/python: deactivate it"
    else
        ENVIRONMENT=$ROOT/.venv
        PYTHON=$ENVIRONMENT/bin/python
        "$PYTHON" -c '' 2>/dev/null || make_venv
    fi
    supported "$PYTHON" ||
        fail "$ENVIRONMENT has $("$PYTHON" --version 2>&1), but mytorch needs Python 3.10 or newer"
    "$PYTHON" -m pip --version >/dev/null 2>&1 || "$PYTHON" -m ensurepip >/dev/null 2>&1 ||
        fail "$ENVIRONMENT has no pip, and 'python -m ensurepip' fails there: install pip into it"
}

make_venv() {
    local candidate python=
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if supported "$candidate"; then python=$candidate; break; fi
    done
    if [ -z "$python" ]; then
        command -v python3 >/dev/null || fail "python3 is missing: install Python 3.10 or newer"
        fail "python3 is $(python3 --version 2>&1), but mytorch needs Python 3.10 or newer"
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python comes without venv: install it (Debian, Ubuntu: sudo apt install python3-venv)"
    say "making the environment .venv ($("$python" --version))"
    "$python" -m venv --clear "$ENVIRONMENT"
}

# install_package EXTRA...: mytorch in editable mode with these extras; does nothing where all of it is there.
install_package() {
    local extras reason
    extras=$(IFS=,; echo "$*")
    if ! reason=$("$PYTHON" "$ROOT/.ci/missing.py" "$@"); then
        say "installing mytorch[$extras] into $ENVIRONMENT ($reason); this can take minutes"
        "$PYTHON" -m pip install -qq --disable-pip-version-check --editable "$ROOT[$extras]"
    fi
}
