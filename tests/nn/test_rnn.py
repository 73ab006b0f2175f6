"""Recurrent layers and cells against PyTorch's: all options together, packed and padded sequences."""

import copy
import itertools

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn
from mytorch.nn.utils import rnn
from tests.oracle import fails_alike

OPTIONS = list(itertools.product((1, 2), (False, True), (False, True), (True, False)))
KINDS = {
    "tanh": ("RNN", {}), "relu": ("RNN", {"nonlinearity": "relu"}), "LSTM": ("LSTM", {}),
    "projected LSTM": ("LSTM", {"proj_size": 3}), "GRU": ("GRU", {}),
}
LENGTHS = {"padded": None, "sorted": [6, 4, 4, 1], "unsorted": [2, 6, 3, 6]}


def both(kind, *args, **options):
    name, more = KINDS[kind]
    theirs = getattr(torch.nn, name)(*args, dtype=torch.float64, **options, **more)
    mine = getattr(nn, name)(*args, dtype="float64", **options, **more)
    assert list(mine.state_dict()) == list(theirs.state_dict()) and repr(mine) == repr(theirs)
    mine.load_state_dict({k: mytorch.Tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    return mine, theirs


def tensors(*arrays):
    ours = [mytorch.Tensor(a.copy(), requires_grad=True) for a in arrays]
    return ours, [torch.tensor(a, requires_grad=True) for a in arrays]


def leaves(x):
    return [leaf for item in x for leaf in leaves(item)] if isinstance(x, tuple) else [x]


def same(mine, theirs):
    for got, want in zip(mine, theirs, strict=True):
        assert tuple(got.shape) == tuple(want.shape)
        got = got.detach() if isinstance(got, mytorch.Tensor) else got
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), 1e-9, 1e-11)


def pull(results, seed=5):
    """Random gradients of all results, back to the leaves."""
    rng = np.random.default_rng(seed)
    total = 0
    for r in results:
        w = rng.standard_normal(tuple(r.shape))
        total = total + (r * (mytorch.Tensor(w) if isinstance(r, mytorch.Tensor) else torch.tensor(w))).sum()
    total.backward()


def run(module, library, x, states, lengths, batch_first):
    hx = None if states is None else tuple(states) if len(states) > 1 else states[0]
    if lengths is None:
        return leaves(module(x, hx))
    packed = library.pack_padded_sequence(x, lengths, batch_first, lengths == sorted(lengths, reverse=True))
    y, last = module(packed, hx)
    assert type(y) is library.PackedSequence
    padded, counts = library.pad_packed_sequence(y, batch_first, padding_value=0.5, total_length=8)
    assert counts.tolist() == lengths
    return [padded, *leaves(last)]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind, lengths):
    rng = np.random.default_rng(0)
    for layers, bidirectional, batch_first, bias in OPTIONS:
        mine, theirs = both(
            kind, 4, 5, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias
        )
        x = rng.standard_normal((4, 6, 4) if batch_first else (6, 4, 4))
        sizes = [KINDS[kind][1].get("proj_size", 5), 5][: 1 + ("LSTM" in kind)]
        states = [rng.standard_normal((layers * (1 + bidirectional), 4, n)) for n in sizes]
        if bias:
            (x, *states), (tx, *theirs_states) = tensors(x, *states)
        else:  # from zeros
            ((x,), (tx,)), states, theirs_states = tensors(x), None, None
        got = run(mine, rnn, x, states, LENGTHS[lengths], batch_first)
        want = run(theirs, torch.nn.utils.rnn, tx, theirs_states, LENGTHS[lengths], batch_first)
        same(got, want)
        pull(got)
        pull(want)
        same(
            [x.grad, *(p.grad for p in mine.parameters())], [tx.grad, *(p.grad for p in theirs.parameters())]
        )
        if states:
            same([s.grad for s in states], [s.grad for s in theirs_states])


@pytest.mark.parametrize("kind", KINDS)
def test_unbatched(kind):
    rng = np.random.default_rng(1)
    for batch_first in (False, True):
        mine, theirs = both(kind, 4, 5, bidirectional=True, batch_first=batch_first)
        sizes = [KINDS[kind][1].get("proj_size", 5), 5][: 1 + ("LSTM" in kind)]
        (x, *states), (tx, *theirs_states) = tensors(
            rng.standard_normal((6, 4)), *(rng.standard_normal((2, n)) for n in sizes)
        )
        same(run(mine, rnn, x, states, None, 0), run(theirs, None, tx, theirs_states, None, 0))
        same(run(mine, rnn, x, None, None, 0), run(theirs, None, tx, None, None, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gradients(kind):
    """A gradient penalty, whose own gradient goes through the layer twice."""
    rng = np.random.default_rng(2)
    mine, theirs = both(kind, 3, 4, num_layers=2, bidirectional=True)
    ((x,), (tx,)), results = tensors(rng.standard_normal((5, 2, 3))), []
    for library, module, inputs in ((mytorch, mine, x), (torch, theirs, tx)):
        output = module(inputs)[0]
        (g,) = library.autograd.grad((output * output).sum(), [inputs], create_graph=True)
        (g * g).sum().backward()
        results.append([inputs.grad, *(p.grad for p in module.parameters())])
    same(*results)


def test_dropout_between_layers():
    x = mytorch.randn(7, 3, 4)
    layer = nn.LSTM(4, 50, num_layers=2, dropout=0.5)
    layer.eval()
    still = layer(x)[0]
    np.testing.assert_array_equal(layer(x)[0].numpy(force=True), still.numpy(force=True))
    layer.train()
    mytorch.manual_seed(0)
    once, (h, _) = layer(x)
    assert not np.allclose(once.numpy(force=True), still.numpy(force=True))
    assert (once.numpy(force=True) != 0).all()  # the output itself is not dropped
    mytorch.manual_seed(0)
    np.testing.assert_array_equal(layer(x)[0].numpy(force=True), once.numpy(force=True))
    same([h[0]], [torch.tensor(layer.eval()(x)[1][0][0].numpy(force=True))])  # nor is the first layer


def test_initial_values():
    mytorch.manual_seed(0)
    for module in (nn.LSTM(30, 100, 2, proj_size=20), nn.GRUCell(30, 100), nn.RNN(30, 100)):
        for p in module.parameters():
            values = p.numpy(force=True)
            assert abs(values).max() <= 0.1 and values.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.15)


def test_half_precision():
    layer = nn.GRU(4, 5).half()
    x = mytorch.randn(6, 2, 4)
    y, h = layer(x.half())
    assert y.dtype == h.dtype == np.float16
    single = copy.deepcopy(layer).float()(x.half().float())[0]
    np.testing.assert_allclose(y.numpy(force=True), single.numpy(force=True), atol=2e-3)


def test_parameters_and_flags():
    layer = nn.LSTM(4, 5, num_layers=2, bidirectional=True, proj_size=2)
    assert [len(w) for w in layer.all_weights] == [5] * 4
    assert layer.all_weights[3][0] is layer.weight_ih_l1_reverse
    assert layer.flatten_parameters() is None
    with pytest.warns(UserWarning, match="with num_layers=1 it is without effect"):
        nn.GRU(4, 5, dropout=0.5)


CELLS = {"tanh": ("RNNCell", {}), "relu": ("RNNCell", {"nonlinearity": "relu"}), "LSTM": ("LSTMCell", {}),
         "GRU": ("GRUCell", {})}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind, bias):
    rng = np.random.default_rng(3)
    name, options = CELLS[kind]
    theirs = getattr(torch.nn, name)(4, 5, bias=bias, dtype=torch.float64, **options)
    mine = getattr(nn, name)(4, 5, bias=bias, dtype="float64", **options)
    assert list(mine.state_dict()) == list(theirs.state_dict()) and repr(mine) == repr(theirs)
    mine.load_state_dict({k: mytorch.Tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    for batch in ((3,), (), (0,)):
        x = [rng.standard_normal((*batch, 4)) for _ in range(3)]
        results = []
        for module, xs in zip((mine, theirs), tensors(*x), strict=True):
            module.zero_grad()
            state, out = None, []
            for step in xs:
                state = module(step, state)
                out += leaves(state)
            pull(out)
            results.append(
                ([o for o in out], [*(x.grad for x in xs), *(p.grad for p in module.parameters())])
            )
        same(results[0][0], results[1][0])
        same(results[0][1], results[1][1])


# Wrong input


def test_wrong_input():
    lstm, gru = nn.LSTM(4, 5), nn.GRU(4, 5, batch_first=True)
    x = mytorch.zeros(6, 3, 4)
    with pytest.raises(RuntimeError, match=r"Expected 4, got 3"):
        lstm(mytorch.zeros(6, 3, 3))
    with pytest.raises(ValueError, match="LSTM: Expected input to be 2D or 3D, got 4D"):
        lstm(mytorch.zeros(1, 6, 3, 4))
    with pytest.raises(ValueError, match="RNN input dtype .float64. does not match weight dtype .float32."):
        lstm(x.double())
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size \(1, 3, 5\), got \[1, 2, 5\]"):
        lstm(x, (mytorch.zeros(1, 3, 5), mytorch.zeros(1, 2, 5)))
    with pytest.raises(RuntimeError, match="For unbatched 2-D input, hx should also be 2-D but got 3-D"):
        gru(x[0], mytorch.zeros(1, 1, 5))
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        gru(mytorch.zeros(3, 0, 4))
    with pytest.raises(ValueError, match="only supported for LSTM"):
        nn.GRU(4, 5, proj_size=2)
    with pytest.raises(ValueError, match="Unknown nonlinearity 'sin'"):
        nn.RNN(4, 5, nonlinearity="sin")
    with pytest.raises(ValueError, match="proj_size has to be smaller than hidden_size, got 5 and 5"):
        nn.LSTM(4, 5, proj_size=5)
    with pytest.raises(RuntimeError, match="got 3 expected 4"):
        nn.GRUCell(4, 5)(mytorch.zeros(2, 3))
    with pytest.raises(RuntimeError, match=r"Input batch size 2 doesn't match hidden1 of shape \(3, 5\)"):
        nn.LSTMCell(4, 5)(mytorch.zeros(2, 4), (mytorch.zeros(2, 5), mytorch.zeros(3, 5)))
    with pytest.raises(RuntimeError, match="hidden0 has inconsistent hidden_size: got 4, expected 5"):
        nn.RNNCell(4, 5)(mytorch.zeros(2, 4), mytorch.zeros(2, 4))


# Sequences of several lengths


def sequences(lengths, *rest):
    rng = np.random.default_rng(4)
    return [rng.standard_normal((n, *rest)) for n in lengths]


def same_packed(mine, theirs):
    for got, want in zip(mine, theirs, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_array_equal(got.detach().numpy(), want.detach().numpy())


@pytest.mark.parametrize("rest", [(), (2,), (2, 3)])
@pytest.mark.parametrize("lengths", [[5, 3, 3, 1], [2, 5, 1, 5], [1], [3, 3]])
def test_there_and_back(lengths, rest):
    arrays = sequences(lengths, *rest)
    ours, theirs = tensors(*arrays)
    for side in ("right", "left"):
        for batch_first in (False, True):
            options = {"batch_first": batch_first, "padding_value": 0.25, "padding_side": side}
            padded = rnn.pad_sequence(ours, **options)
            same([padded], [torch.nn.utils.rnn.pad_sequence(theirs, **options)])
    sizes = mytorch.Tensor(np.array(lengths))
    for array, back in zip(arrays, rnn.unpad_sequence(rnn.pad_sequence(ours), sizes), strict=True):
        np.testing.assert_array_equal(back.detach().numpy(), array)
    packed = rnn.pack_sequence(ours, enforce_sorted=False)
    same_packed(packed, torch.nn.utils.rnn.pack_sequence(theirs, enforce_sorted=False))
    for array, back in zip(arrays, rnn.unpack_sequence(packed), strict=True):
        np.testing.assert_array_equal(back.detach().numpy(), array)
    (packed.data * packed.data).sum().backward()
    same([x.grad for x in ours], [torch.tensor(2 * a) for a in arrays])


def test_a_packed_sequence_moves():
    packed = rnn.pack_sequence([mytorch.zeros(n) for n in (1, 3)], enforce_sorted=False)
    assert packed.to("float64").data.dtype == packed.double().data.dtype == np.float64
    assert packed.to("cpu") is packed and not packed.is_cuda
    np.testing.assert_array_equal(packed.long().unsorted_indices.numpy(), [1, 0])


def test_wrong_sequences():
    def pack(library, x, lengths, enforce_sorted=True):
        module = rnn if isinstance(x, mytorch.Tensor) else torch.nn.utils.rnn
        return module.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)

    x = np.zeros((4, 3, 2), "float32")
    for lengths, message in (
        ([4, 2], r"Expected `len\(lengths\)` to be equal to batch_size, but got 2 and 3"),
        ([4, 2, 0], "has to be greater than 0, but found 0"),
        ([2, 4, 1], "must be sorted in decreasing order"),
    ):
        fails_alike(
            lambda x, lengths=lengths: pack(rnn, x, lengths),
            lambda x, lengths=lengths: pack(None, x, lengths),
            x, match=message,
        )
    with pytest.raises(RuntimeError, match="a length of 5 is above the length of the padded sequences, 4"):
        pack(rnn, mytorch.Tensor(x), [5, 4, 1])  # PyTorch reads on behind the end
    packed = rnn.pack_padded_sequence(mytorch.Tensor(x), [4, 2, 1])
    with pytest.raises(ValueError, match="got total_length=3 and max sequence length being 4"):
        rnn.pad_packed_sequence(packed, total_length=3)
    with pytest.raises(RuntimeError, match=r"of shapes \(2, 3\) and \(2, 4\) differ"):
        rnn.pad_sequence([mytorch.zeros(2, 3), mytorch.zeros(2, 4)])
    with pytest.raises(RuntimeError, match="padding_side must be 'left' or 'right', got 'top'"):
        rnn.pad_sequence([mytorch.zeros(2)], padding_side="top")
    with pytest.raises(RuntimeError, match="empty list"):
        rnn.pad_sequence([])
