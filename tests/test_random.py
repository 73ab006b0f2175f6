"""Generators: seeds, states and devices. CuPy is the strict stand-in here."""

import threading

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Generator
from mytorch.random import default_generator
from tests.every import every


def test_a_generator_is_a_stream_of_its_own():
    mytorch.manual_seed(0)
    a, b = Generator().manual_seed(5), Generator().manual_seed(5)
    first = mytorch.rand(3, generator=a)
    mytorch.rand(7)
    assert mytorch.rand(3, generator=b).tolist() == first.tolist() != mytorch.rand(3, generator=a).tolist()
    after = mytorch.rand(3)
    mytorch.manual_seed(0)
    mytorch.rand(7)
    assert mytorch.rand(3).tolist() == after.tolist()


def test_seeds():
    assert Generator().initial_seed() == torch.Generator().initial_seed()
    for seed in (0, -1, 2**64 - 1, -(2**63), np.int64(3)):
        assert (
            Generator().manual_seed(seed).initial_seed()
            == torch.Generator().manual_seed(int(seed)).initial_seed()
        )
        assert mytorch.manual_seed(seed).initial_seed() == mytorch.initial_seed() == int(seed) % 2**64
    one = Generator()
    assert one.seed() == one.initial_seed() != one.seed()
    assert mytorch.seed() == mytorch.initial_seed() != mytorch.seed()
    assert repr(Generator().manual_seed(3)) == "Generator(device='cpu', initial_seed=3)"


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_the_state_goes_round(device, fake_cuda):
    g = Generator(device).manual_seed(7)
    mytorch.rand(3, device=device, generator=g)  # an odd number of 32-bit draws leaves half of a 64-bit one
    state = g.get_state()
    assert state.dtype == "uint8" and state.device == "cpu"
    want = [f(5, device=device, generator=g).tolist() for f in (mytorch.rand, mytorch.randn)]
    again = Generator(device).set_state(mytorch.from_numpy(np.array(state.tolist(), "uint8")))
    assert [f(5, device=device, generator=again).tolist() for f in (mytorch.rand, mytorch.randn)] == want
    assert again.initial_seed() == 7


def test_the_default_state_goes_round(fake_cuda):
    mytorch.manual_seed(1)
    for device in ("cpu", "cuda:0"):
        state = mytorch.get_rng_state(device)
        first = mytorch.randn(4, device=device).tolist()
        mytorch.set_rng_state(state, device)
        assert mytorch.randn(4, device=device).tolist() == first


def test_manual_seed_reaches_every_device(fake_cuda):
    mytorch.manual_seed(1)
    first = [mytorch.rand(3, device=d).tolist() for d in ("cpu", "cuda:0", "cuda:1")]
    mytorch.manual_seed(1)
    assert [mytorch.rand(3, device=d).tolist() for d in ("cpu", "cuda:0", "cuda:1")] == first


def test_fork_rng(fake_cuda):
    mytorch.manual_seed(1)
    want = mytorch.rand(3).tolist()
    mytorch.manual_seed(1)
    with mytorch.random.fork_rng():
        mytorch.manual_seed(9)
        mytorch.rand(3, device="cuda")
    assert mytorch.rand(3).tolist() == want
    inside = mytorch.rand(3, device="cuda").tolist()
    mytorch.manual_seed(1)
    assert mytorch.rand(3, device="cuda").tolist() == inside


def test_another_thread_draws_the_same_numbers():
    mytorch.manual_seed(1)
    want, got = mytorch.randn(5).tolist(), []
    mytorch.manual_seed(1)
    thread = threading.Thread(target=lambda: got.extend(mytorch.randn(5).tolist()))
    thread.start()
    thread.join()
    assert got == want


def test_seeding_in_another_thread_reaches_this_one():
    thread = threading.Thread(target=mytorch.manual_seed, args=(5,))
    thread.start()
    thread.join()
    got = mytorch.rand(3).tolist()
    mytorch.manual_seed(5)
    assert mytorch.rand(3).tolist() == got


@pytest.mark.parametrize("seed", [1.5, "1", None])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(TypeError, match="integer"):
        mytorch.manual_seed(seed)


def test_a_generator_draws_on_its_own_device(fake_cuda):
    for call in (
        lambda: mytorch.rand(2, device="cuda", generator=Generator()),
        lambda: mytorch.ones(2, device="cuda:1").uniform_(generator=Generator("cuda:0")),
        lambda: mytorch.multinomial(mytorch.ones(2), 1, generator=Generator("cuda")),
    ):
        with pytest.raises(RuntimeError, match="generator on .*cuda"):
            call()


def test_seeds_for_kernels_are_the_same_on_every_device(fake_cuda):
    mytorch.manual_seed(11)
    seeds = [[default_generator(device).next_seed() for _ in range(1000)] for device in ("cpu", "cuda:1")]
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 1000
    assert every(0 <= seed < 2**63 for seed in seeds[0])
    bits = np.array([[seed >> b & 1 for b in range(63)] for seed in seeds[0]])
    assert np.abs(bits.mean(0) - 0.5).max() < 0.08  # five standard deviations
    assert Generator().manual_seed(12).next_seed() != seeds[0][0]


def test_the_number_of_seeds_is_part_of_the_state(device):
    g = Generator(device).manual_seed(4)
    g.next_seed()
    state = g.get_state()
    wanted = g.next_seed(), g.next_seed()
    assert g.set_state(state).next_seed() == wanted[0]
    assert Generator(device).set_state(state).next_seed() == wanted[0]
    g.manual_seed(4).next_seed()
    assert g.next_seed() == wanted[0]
