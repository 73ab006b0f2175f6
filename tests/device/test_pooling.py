"""Pooling, padding and interpolation on a GPU (the strict stand-in for CuPy), without waiting for it."""


from mytorch.nn import functional as F
from tests.each import each
from tests.nn.functional.test_pooling import CALLS
from tests.on_device import DEVICE, LAYOUTS, check, never_waiting, tensor


@each("name", CALLS)
@each("layout", LAYOUTS)
def test_as_on_the_cpu(fake_cuda, name, layout):
    function, arrays, args, kwargs = CALLS[name]
    check(lambda _, *xs: getattr(F, function)(*xs, *args, **kwargs), *arrays, layout=layout)


def test_they_dont_wait_for_the_gpu(fake_cuda, monkeypatch):
    with never_waiting(monkeypatch, fake_cuda):
        for function, arrays, args, kwargs in CALLS.values():
            inputs = [tensor(a, DEVICE, grad=True) for a in arrays]
            y = getattr(F, function)(*inputs, *args, **kwargs)
            y = y[0] if isinstance(y, tuple) else y
            if y.requires_grad:
                y.sum().backward()
