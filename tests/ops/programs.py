"""Small programs that mix views and writes in place, to be run with either library as F.

x is (3, 4), w is (4,), both leaves that want a gradient; what a program returns is differentiated.
"""

from hypothesis import strategies as st


def version_of_view_and_base(F, x, w):
    y = x * 2
    v = y[1:]
    v.mul_(x[1:])
    return (y * v.sum()).sum()


def base_written_after_the_view(F, x, w):
    y = x * 2
    v = y[1:]
    y.mul_(w)
    return v * v


def base_written_before_the_view(F, x, w):
    y = x * 2
    y.mul_(w)
    v = y[1:]
    return v * v, y


def both_written(F, x, w):
    y = x * 2
    v = y[:, 1]
    v += w[:3]
    y *= 3
    v -= 1
    y[0] = w
    return y * y, v * v


def two_views(F, x, w):
    y = x * 2
    a, b = y[:2], y[1:]
    a.mul_(w)
    b.add_(a.clone())
    return y, a * a, b * b


def views_of_views(F, x, w):
    y = x * 2
    v = y[1:].T[2]
    u = y.view(12)
    v.mul_(w[:2])
    u[3:7].mul_(5)
    return y * y, v, u


def transposed(F, x, w):
    y = x * 2
    t = y.T
    t[1:3].mul_(w[:3])
    return y * y, t


def view_of_a_result_that_lies_transposed(F, x, w):
    y = x.T * 2
    v = y.T.view(12)
    v[:5] = w[0] * v[:5].clone()
    return y * y, v


def reshaped_from_a_transposed_result(F, x, w):
    y = (x.T * 2).contiguous()
    v = y.view(2, 6).T
    v[1::2, 0] *= w[:3]
    return y * y


def unsqueezed_and_squeezed(F, x, w):
    y = x * 2
    v = y.unsqueeze(1).unsqueeze(0)
    v[0, 1, 0].mul_(w)
    u = v.squeeze()
    u[2, 2:] = w[:2]
    return y * y, u * 2


def diagonal(F, x, w):
    y = x * 2
    y.diagonal()[1:] *= w[:2]
    y.diagonal(1).zero_()
    return y * y


def expanded_once_more_after_a_write(F, x, w):
    y = w * 2
    v = y.expand(3, 4)
    y.mul_(w)
    return v * x


def select_and_narrow(F, x, w):
    y = x * 2
    y.select(0, 1).mul_(w)
    y.narrow(1, 1, 2).add_(w[:2])
    return y * y


def unbind_after_a_write(F, x, w):
    y = x * 2
    y[0].mul_(w)
    a, b, c = y.unbind()
    return a * b + c


def cat_of_written(F, x, w):
    y = x * 2
    y[:, 0] = 1
    return F.cat([y, y * w])


def setitem_of_itself(F, x, w):
    y = x * 2
    y[0] = y[1] + y[2]
    y[2] = y[0] + w
    return y * y


def setitem_in_a_loop(F, x, w):
    out = F.zeros(4, 4, dtype=x.dtype)
    for i in range(3):
        out[i] = x[i] * w + (out[i - 1] if i else 0)
    return out * out


def augmented_item(F, x, w):
    y = x * 2
    y[0] += w
    y[1:, 2] *= y[:2, 1].clone()
    y[:, [0, 2]] -= 1
    y[F.tensor([2, 0]), 3] /= w[:2]
    return y * y


def setitem_by_mask(F, x, w):
    y = x * 2
    y[y > 3] = 0
    y[x < 1] = w[0]
    return y * y


def setitem_of_a_mask_with_values(F, x, w):
    y = x * 2
    mask = F.tensor([True, False, True])
    y[mask] = w * y[mask]
    y[:, F.tensor([True, False, False, True])] = x[:, :2]
    return y * y


def setitem_by_index_on_a_view(F, x, w):
    y = x * 2
    v = y.T
    v[[3, 1]] = x[:, :2].T * 5
    v[0, [0, 2]] = w[:2]
    return y * y, v


def setitem_on_a_tensor_without_history(F, x, w):
    y = F.ones(3, 4, dtype=x.dtype)
    y[1] = w * 3
    y[2, 1:] = x[0, 1:]
    return y * x


def view_of_a_tensor_without_history(F, x, w):
    y = F.ones(3, 4, dtype=x.dtype)
    v = y[1:]
    v.mul_(w)
    return y * y, v


def copied_into(F, x, w):
    y = x * 2
    y.copy_(w)
    z = x * 3
    z[:2].copy_(y[1:])
    return y, z


def filled(F, x, w):
    y = x * 2
    z = y * y
    u = x * 3
    u.fill_(2)
    u[1].zero_()
    return z, u * x


def old_value_still_used(F, x, w):
    y = x * 2
    z = y + w
    y.mul_(5)
    return z, y


def twice_in_place_and_twice_used(F, x, w):
    y = x * 2
    y.add_(w).mul_(2)
    return y + y * 3


def masked_fill_and_tril(F, x, w):
    y = x * 2
    y.masked_fill_(y > 4, -1).tril_()
    return y * y


def scattered(F, x, w):
    y = x * 2
    y.scatter_(1, F.tensor([[0], [1], [3]]), x[:, :1])
    y[1:].scatter_add_(1, F.tensor([[0, 0], [1, 2]]), x[:2, :2])
    return y * y


def written_without_recording(F, x, w):
    y = x * 2
    with F.no_grad():
        y[0] = 7
        y[1:].add_(1)
    return y * w


def view_used_without_recording_after_a_write(F, x, w):
    y = x * 2
    v = y[1:]
    y.mul_(w)
    with F.no_grad():
        assert v.requires_grad
        _ = v * 2
    return v * v


def detached_view(F, x, w):
    y = x * 2
    d = y.detach()
    z = y + w
    d[0] = 9
    return z, y


def half_of_a_chain_detached(F, x, w):
    y = x * 2
    z = y.detach() * w
    z[0] = x[0]
    return z * z


PROGRAMS = [
    version_of_view_and_base, base_written_after_the_view, base_written_before_the_view, both_written,
    two_views,
    views_of_views, transposed, view_of_a_result_that_lies_transposed, reshaped_from_a_transposed_result,
    unsqueezed_and_squeezed, diagonal, expanded_once_more_after_a_write, select_and_narrow,
    unbind_after_a_write,
    cat_of_written, setitem_of_itself, setitem_in_a_loop, augmented_item, setitem_by_mask,
    setitem_of_a_mask_with_values, setitem_by_index_on_a_view, setitem_on_a_tensor_without_history,
    view_of_a_tensor_without_history, copied_into, filled, old_value_still_used,
    twice_in_place_and_twice_used, masked_fill_and_tril, scattered, written_without_recording,
    view_used_without_recording_after_a_write, detached_view, half_of_a_chain_detached,
]


# Programs drawn at random.

VIEW_STEPS = ("transpose", "slice", "select", "unsqueeze", "reshape", "diagonal")
WRITE_STEPS = ("mul", "add", "item", "mask", "sin", "copy")


@st.composite
def steps(draw):
    """Views and writes, each of the tensor of that number: the first is the base, every view is one more."""
    program = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([*VIEW_STEPS, *WRITE_STEPS]))
        program.append((kind, draw(st.integers(0, 9)), draw(st.integers(0, 2)), draw(st.integers(0, 2))))
    return program


def run_steps(F, x, w, program, transposed):
    """The tensors at the end: all views of the one base, unless a reshape had to copy."""
    found = [x.T * 2 if transposed else x * 2]
    for kind, which, i, j in program:
        t = found[which % len(found)]
        if t.ndim == 0 or t.numel() == 0:
            continue
        dim, index = i % t.ndim, j % t.shape[i % t.ndim]
        if kind == "transpose":
            found.append(t.transpose(dim, j % t.ndim))
        elif kind == "slice":
            found.append(t[index:] if i else t[..., ::2])
        elif kind == "select":
            found.append(t.select(dim, index))
        elif kind == "unsqueeze":
            found.append(t.unsqueeze(dim))
        elif kind == "reshape":
            found.append(t.reshape(-1))
        elif kind == "diagonal" and t.ndim > 1:
            found.append(t.diagonal())
        elif kind == "mul":
            t.mul_(w[i])
        elif kind == "add":
            t += (w * 2)[j]
        elif kind == "item":
            t[index % t.shape[0]] = w[i] if j else 0.5
        elif kind == "mask":
            t[t > 2] = w[j]
        elif kind == "sin":
            t.mul_(-1).sin_()
        elif kind == "copy":
            t.copy_(found[j % len(found)].sum().clone() / 10)
    return found
