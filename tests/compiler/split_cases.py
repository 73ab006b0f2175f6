"""Functions of a list, to which they may append, and of two tensors, that can't be captured as they are."""

import collections
import contextlib

import numpy as np

import mytorch


def an_element(log, x, w):
    y = (x * w).tanh()
    log.append(y.sum().item())
    return y * 2 + x


def two_elements(log, x, w):
    y = x * w
    log.append(y.sum().item())
    z = (y * 3).exp()
    log.append(z.max().item())
    return z * y


def a_print(log, x, w):
    y = x * w
    print("the sum", float(y.sum()))
    return y + 1


def a_print_of_text(log, x, w):
    y = (x * w).relu()
    print("here")
    return y.sum() * 2


def an_element_in_a_condition(log, x, w):
    y = x * w
    if y.sum().item() > 0.0:
        z = y * 2
        z = z + 1
    else:
        z = -y
    return z * z


def an_element_in_a_branch(log, x, w):
    y = x * w
    if len(log) > 1:
        y = y.exp()
        log.append(y.mean().item())
        y = y + 1
    log.append(0.0)
    return y * 2


def an_element_in_a_loop(log, x, w):
    total = x * 0
    for k in range(3):
        y = (x * w + total) * (k + 1)
        log.append(y.sum().item())
        total = total + y
    return total


def a_loop_over_tensors(log, x, w):
    total = 0.0
    for row in [x, x * 2, x + w]:
        y = (row * w).sum()
        total += y.item()
        log.append(total)
    return y * total


def until_it_is_small(log, x, w):
    y, count = x * w, 0
    while y.abs().max().item() > 0.5:
        y = y / 2
        count += 1
        if count > 20:
            break
        y = y * 1.1
    return y, count


def with_continue(log, x, w):
    y = x * w
    for k in range(4):
        if k == 1:
            continue
        y = y + x * k
        print(k)
        if k == 2:
            break
        y = y * 1.5
    else:
        y = y * 100
    return y


def without_gradients(log, x, w):
    y = x * w
    with mytorch.no_grad():
        z = y * 2
        log.append((z.item if z.numel() == 1 else z.sum().item)())
        z = z + y
    return y * z


def an_exception(log, x, w):
    y = x * w
    try:
        y = y * 2
        if y.sum().item() > 0.0:
            raise ValueError("positive")
        y = y * 3
    except ValueError as error:
        log.append(str(error))
        y = y + 5
    finally:
        log.append("done")
    return y * y


def what_was_assigned_before_an_error(log, x, w):
    y = x * w
    with contextlib.suppress(RuntimeError):
        y = y * 2
        z = y + 1
        print("now")
        y = z * 3
        y = y @ mytorch.ones(7, 9)
    try:
        y = y * 2
        print("then")
        y = (y + 1) * 2
        y = y @ mytorch.ones(7, 9)
    except RuntimeError:
        log.append(y.sum().item())
    return y


def an_early_return(log, x, w):
    y = x * w
    if y.sum().item() > 0.0:
        return y.exp() * 2
    y = y * 3
    if len(log) > 2:
        return y, x
    print("late")
    return y * y


def a_mask(log, x, w):
    y = (x * w).tanh()
    z = y[y > 0]
    total = z.sum() * 2 + y.mean()
    return total * total


def containers(log, x, w):
    found = {"a": x * w}
    pair = [found["a"] * 2, 3]
    print(len(pair))
    pair.append(found["a"].sum())
    found["b"] = pair[0] * pair[1]
    return found, (pair[2], found["b"])


def views(log, x, w):
    y = (x * 2).detach()
    first = y[0]
    print("a view")
    first.mul_(10)
    y.add_(1)
    return y, first * w


def a_view_of_what_it_makes(log, x, w):
    y = x * w
    part = y[:1]
    print("a view")
    part.mul_(3)
    return y.sum() * 2


def in_place(log, x, w):
    y = x.detach() * 2
    y.add_(1)
    print("written")
    y.mul_(w)
    z = y * 2
    return z, y


def the_same_twice(log, x, w):
    y = x.detach() * 2
    z = y
    rows = [y, z]
    print("the same", rows[0] is rows[1])
    z.add_(1)
    rows[0].mul_(2)
    return y * w, z is y


def unbound(log, x, w):
    if len(log) > 0:
        bias = x * 2
    y = x * w
    print("middle")
    y = y * 3
    if len(log) > 0:
        y = y + bias
    log.append(1)
    return y


def from_the_last_iteration(log, x, w):
    for k in range(3):
        if k > 0:
            y = last * 2 + x  # noqa: F821 - assigned below
            log.append(y.sum().item())
        last = x * w + k
        last = last * 2
    return last * y


def comprehensions(log, x, w):
    ys = [x * k for k in range(1, 3)]
    total = sum(y.sum() for y in ys)
    print(len(ys))
    k = 5
    z = sum([y * w for y in ys]) * k
    return z + total


def a_function_in_it(log, x, w):
    scale = x * 2

    def scaled(y):
        return y * scale

    print("defined")
    y = scaled(w)
    return y + scaled(x)


def a_late_closure(log, x, w):
    y = x * 1
    get = lambda: y  # noqa: E731
    print("before")
    y = y * w
    return get() * 2


def an_object(log, x, w):
    pair = np.random.RandomState(3)
    y = x * pair.uniform()
    kind = x.dtype
    print(kind)
    size = x.shape
    return y * w, size.numel(), kind


def a_set(log, x, w):
    seen = set()
    y = x * w
    for k in range(3):
        seen.add(k)
        print(len(seen))
        y = y * 2
        seen.add(-k)
    return y, sorted(seen)


def a_caught_refusal(log, x, w):
    y = x * w
    try:
        total = y.sum().item()
    except Exception:
        total = 0.0
    y = y * 2 + x
    return y * total


def bound_in_a_try(log, x, w):
    y = x * w
    try:
        if len(log) == 1:
            raise ValueError("unbound")
        bias = x * 2
        print("bound")
    except ValueError as error:
        print(error)
    y = y * 3
    try:
        y = y + bias
    except UnboundLocalError:
        y = y - 1
    print("end")
    log.append(1)
    return y


QUEUE = collections.deque()


def a_queue(log, x, w):
    if not log:
        QUEUE.clear()
    y = x * w
    QUEUE.append(1)
    log.append(len(QUEUE))
    y = y * 2
    QUEUE.append(2)
    log.append(y.sum().item())
    return y * len(QUEUE)


def a_queue_by_another_name(log, x, w):
    queue = QUEUE
    if not log:
        queue.clear()
    y = x * w
    print("append")
    queue.append(1)
    y = y * 2
    return y * len(queue), log.append(len(queue))


def an_iterator(log, x, w):
    rows = iter([x, w, x + w])
    y = next(rows) * 2
    log.append(y.sum().item())
    y = y * next(rows)
    for row in rows:
        y = y + row
    return y


def one_line(log, x, w):
    y = x * w; print("a"); y = y * 2; log.append(y.sum().item()); y = y + 1  # noqa: E702
    return y


def nested(log, x, w):
    y = x * w
    for k in range(2):
        with mytorch.enable_grad():
            if k:
                y = y * 2
                for j in range(2):
                    log.append(y.sum().item() + j)
                    y = y + 1
            else:
                y = y * 3
                print(k)
        y = y * 1.5
    return y


def backward_inside(log, x, w):
    leaf = x.detach().requires_grad_()
    loss = (leaf * w).tanh().sum()
    log.append(loss.item())
    loss.backward(retain_graph=True)
    gradient = leaf.grad * 2
    return gradient, loss * 2


def a_walrus(log, x, w):
    y = x * w
    if (total := y.sum().item()) > 0.0:
        y = y * 2
    y = y * total + x
    return y


def nothing(log, x, w):
    """A docstring."""
    y = x * w
    log.append(y.sum().item())
    return


FUNCTIONS = [
    an_element, two_elements, a_print, a_print_of_text, an_element_in_a_condition,
    an_element_in_a_branch, an_element_in_a_loop, a_loop_over_tensors, until_it_is_small,
    with_continue, without_gradients, an_exception, what_was_assigned_before_an_error,
    an_early_return, a_mask, containers, views, a_view_of_what_it_makes, in_place, the_same_twice,
    unbound, from_the_last_iteration, comprehensions, a_function_in_it, a_late_closure, an_object,
    a_set, a_caught_refusal, bound_in_a_try, a_queue,
    a_queue_by_another_name, an_iterator, one_line, nested, backward_inside, a_walrus, nothing,
]
WHOLE = {"a_late_closure", "one_line", "unbound"}  # aren't split
