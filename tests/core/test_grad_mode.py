"""no_grad, enable_grad, set_grad_enabled: as contexts, decorators and calls."""

import pytest
import torch

import mytorch

LIBRARIES = [mytorch, torch]


def recording(lib, x):
    return (x * 2).requires_grad


def program_nested(lib, x):
    seen = []
    with lib.no_grad():
        seen.append(recording(lib, x))
        with lib.enable_grad():
            seen.append(recording(lib, x))
        seen.append(lib.is_grad_enabled())
    return [*seen, recording(lib, x)]


def program_decorators(lib, x):
    @lib.no_grad()
    def off(n):
        return recording(lib, x) or (n > 0 and off(n - 1))

    @lib.no_grad
    def bare():
        return recording(lib, x)

    @lib.enable_grad()
    def on():
        return recording(lib, x)

    with lib.no_grad():
        inside = on()
    return [off(3), bare(), inside, recording(lib, x), off.__name__]


def program_set(lib, x):
    seen = []
    lib.set_grad_enabled(False)
    seen.append(recording(lib, x))
    lib.set_grad_enabled(True)
    with lib.set_grad_enabled(False):
        seen.append(recording(lib, x))
    seen.append(recording(lib, x))

    @lib.set_grad_enabled(False)
    def off():
        return recording(lib, x)

    return [*seen, recording(lib, x), off(), lib.is_grad_enabled()]


def program_generator(lib, x):
    @lib.no_grad()
    def numbers():
        try:
            received = yield recording(lib, x)
            yield received, recording(lib, x)
        finally:
            seen.append(recording(lib, x))

    seen = []
    running = numbers()
    seen.append(next(running))
    seen.append(recording(lib, x))  # the consumer keeps its own mode between two items
    seen.append(running.send(7))
    running.close()
    return [*seen, recording(lib, x)]


def program_exception(lib, x):
    try:
        with lib.no_grad():
            raise KeyError
    except KeyError:
        pass
    return [recording(lib, x)]


@pytest.mark.parametrize(
    "program",
    [program_nested, program_decorators, program_set, program_generator, program_exception],
)
def test_the_modes_are_pytorchs(program):
    ours = program(mytorch, mytorch.Tensor([1.0], requires_grad=True))
    theirs = program(torch, torch.ones(1, requires_grad=True))
    assert ours == theirs
    assert mytorch.is_grad_enabled()


def test_inference_mode_records_nothing():
    x = mytorch.Tensor([1.0], requires_grad=True)
    with mytorch.inference_mode():
        assert not recording(mytorch, x)
    with mytorch.inference_mode(False):
        assert recording(mytorch, x)


def test_one_mode_may_be_entered_inside_itself():
    x = mytorch.Tensor([1.0], requires_grad=True)
    mode = mytorch.no_grad()
    with mode, mode:
        assert not recording(mytorch, x)
    assert recording(mytorch, x)
