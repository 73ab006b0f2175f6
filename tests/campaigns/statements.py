"""The statements that random programs are made of.

{a}, {b}, {c}: tensors; {i}, {j}: small integers, negative ones, too; {s}: a number; {t}: a dtype; {m}: a mask
like {a}; F, N: the library and its nn.functional; ints(…): an int64 tensor on the device. A statement without
`=` defines a tensor, or several. (PyTorch's median along a dim of stride 0
reads other memory; its hardtanh's gradient at NaN depends on the place in memory; sums of zeros have either
sign, so 0 is added before a division; a norm of 0 has no direction, a sinc of an integer no digits.)
"""


def split(text):
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


VIEWS = split("""
{a}.transpose({i}, {j}) | {a}.T | {a}[{i}] | {a}[..., {i}] | {a}[1:] | {a}[..., ::2] | {a}[:, None]
{a}[None, {i}:] | {a}.unsqueeze({i}) | {a}.squeeze() | {a}.squeeze({i}) | {a}.select({i}, {j})
{a}.narrow({i}, 0, 2) | {a}.reshape(-1) | {a}.view(-1) | {a}.view(2, -1) | {a}.reshape(-1, 2)
{a}.flatten() | {a}.expand(3, -1, -1) | {a}.expand_as({b}) | {a}.diagonal() | {a}.diagonal({i})
{a}.movedim(0, {i}) | {a}.unfold({i}, 2, 2) | {a}.unbind({i}) | {a}.split(2, {i}) | {a}.chunk(2, {i})
{a}.permute(1, 0) | {a}.permute({i}, {j}, 0) | {a}.detach() | {a}.swapaxes({i}, {j}) | {a}.view_as({b})
{a}.broadcast_to({b}.shape) | {a}.unflatten({i}, (2, -1)) | {a}.transpose(-2, -1) | {a}.tensor_split(2, {i})
""")
WRITES = split("""
{a}.mul_({b}) | {a}.add_({b}, alpha={s}) | {a}.sub_({s}) | {a} += {b} | {a} *= {s} | {a} -= {b}
{a}.copy_({b}.clone()) | {a}.fill_({s}) | {a}[{i}] = {s} | {a}[{i}] = {b}.clone() | {a}[1:] = {b}.clone()
{a}[..., {i}] += {s} | {a}[:, {i}] = {b}.clone() | {a}.neg_() | {a}[{m}] = {s} | {a}[{m}] *= {s}
{a}[ints(0, 1)] = {b}.clone().type_as({a}) | {a}[ints(0, -1)] += {s} | {a}.masked_fill_({m}, {s})
{a}.clamp_(-1, 2) | {a}.index_add_({i}, ints(0, 0), {b}.clone()) | {a}.index_fill_({i}, ints(1), {s})
{a}.tril_() | {a}.scatter_add_({i}, ints([0, 1], [1, 0]), {b}.clone()) | {a}.addcmul_({b}, {c})
{a}.lerp_({b}, 0.5) | {a}.relu_() | {a}.index_copy_({i}, ints(0, 1), {b}.clone())
{a}.index_put_((ints(0, 0),), {b}.clone(), accumulate=True) | {a}.bitwise_and_({b}) | {a}.zero_()
{a}.where({m}, {b}).mul_({s}) | {a}.abs_() | {a}.floor_() | {a}.triu_({i}) | {a}.pow_(2) | {a}.clamp_min_({s})
{a}.scatter_({i}, ints([0, 1], [1, 0]), {s}) | {a}.scatter_({i}, ints([0, 1], [1, 0]), {b}.clone())
{a}.masked_scatter_({m}, {b}.clone()) | N.leaky_relu_({a}, 0.5) | N.hardtanh_({a}.nan_to_num_())
""")
EXACT = split("""
{a} + {b} | {a} - {b} | {a} * {b} | {a} + {s} | {s} - {a} | {a} * {s} | -{a} | {a}.abs() | {a}.sign()
{a}.floor() | {a}.round() | {a} < {b} | {a} == {b} | {a} >= {s} | {a} != {s} | F.where({m}, {a}, {b})
F.where({m}, {a}, {s}) | {a}.to({t}) | {a}.clone() | {a}.sum() | {a}.sum({i}) | {a}.sum({i}, keepdim=True)
{a}.amax({i}) | {a}.max({i}) | {a}.min() | {a}.argmax({i}) | {a}.amin({i}) | {a}.any({i}) | {a}.all()
{a}.sort(dim={i}, stable=True) | {a}.cumsum({i}) | {a}.flip({i}) | {a}.roll(1, {i}) | {a}.maximum({b})
F.cat(({a}, {b})) | F.cat(({a}, {b}, {a}), {i}) | F.stack(({a}, {b}), {i}) | {a}[{m}] | {a}[ints(0, -1)]
{a}[:, ints(0, 0)] | {a}.repeat(2, 1) | {a}.index_select({i}, ints(0, 0, 1))
{a}.gather({i}, ints([0, 1], [1, 0])) | {a}.masked_fill({m}, {s}) | {a}.relu() | {a}.triu({i})
{a}.detach() // {b}.detach() | {a} % {b} | {a}.detach() // {s} | {a} % {s} | {a} & {b} | ~{a}
{a}.clamp(-1, 1.5) | {a}.clamp(min={b}) | {a} ** 2 | {a} @ {b} | {a}.matmul({b}.T) | {a}.outer({b})
F.dot({a}, {b}) | {a}.bool() | {a}.long() | {a}.float() | {a}.half() | {a}.bfloat16() | {a}.type_as({b})
F.full_like({a}, {s}) | F.zeros_like({a}) | {a}.new_ones(2, 3) | {a}.tile(2) | {a}.nonzero()
{a}.count_nonzero({i}) | F.addcmul({a}, {b}, {c}) | F.baddbmm({a}, {b}, {c}) | {a}.diff(dim={i})
{a}.prod({i}) | {a}.repeat_interleave(2, {i}) | {a}.isfinite() | {a}.logical_xor({b})
{a}.trunc() | {a}.fmod({b}) | {a}.cummax({i}) | {a}.diag() | F.kron({a}.contiguous(), {b}.contiguous())
N.pad({a}, (1, 0)) | N.pad({a}, (1, 2), value={s}) | N.one_hot({a}.long().clamp(0, 3), 4)
N.embedding(ints(0, 1), {a}) | {a}.aminmax(dim={i}) | {a}.detach().topk(2, {i})[0]
{a}.detach().contiguous().median({i})[0] | {a}.scatter({i}, ints([0, 1], [1, 0]), {b})
{a}.scatter_reduce({i}, ints([0, 1], [1, 0]), {b}, "amax")
{a}.scatter({i}, ints([0, 1], [1, 0]), {s}) | {a}.take(ints(0, -1)) | {a}.argsort(dim={i}, stable=True)
{a}.detach().unique() | {a}.cummin({i}) | {a}.logical_not() | {a}.minimum({b}) | F.tensordot({a}, {b}, 1)
{a}.rot90() | {a}.masked_select({m}) | N.leaky_relu({a}, 0.5) | N.relu6({a})
N.hardtanh({a}.nan_to_num()) | N.threshold({a}, 0.5, {s}) | F.isin({a}, {b}) | {a}.trace()
F.einsum("...i->...", {a})
""")
SMOOTH = split("""
{a} + {b} | {a} - {b} | {a} * {b} | {a} + {s} | {s} - {a} | {a} * {s} | {a} / ({b} + 0) | {a} / {s}
{s} / ({a} + 0)
{a}.exp() | {a}.sin() | {a}.tanh() | {a}.sigmoid() | {a}.sqrt() | {a}.log() | {a}.log1p() | {a}.erf()
({a} + 0).rsqrt() | {a}.mean() | {a}.mean({i}) | {a}.std({i}) | {a}.var({i}, unbiased=False)
{a}.softmax({i})
{a}.log_softmax({i}) | {a}.logsumexp({i}) | {a}.norm() | {a}.norm(dim={i}) | {a}.cumsum({i})
{a}.cumprod({i}) | {a} @ {b} | {a} @ {b}.transpose(-2, -1) | {a} ** 2 | {a} ** {s} | {a} ** {b}
{a}.atan2({b}) | {a}.lerp({b}, 0.3) | {a}.sum({i}) | {a}.prod({i}) | {a}.cos() | N.silu({a})
N.gelu({a}.clamp(-9, 9)) | N.softplus({a}) | N.layer_norm({a}, {a}.shape[-1:]) | N.linear({a}, {b})
N.mse_loss({a}, {b}) | N.elu({a}) | N.cross_entropy({a}, ints(0, 1, 1)) | N.normalize({a}, dim={i}, eps=0.01)
F.where({m}, {a}, {b}) | {a}.to({t}) | {a}.square() | ({a} + 0).reciprocal() | F.addcdiv({a}, {b}, {c} + 0)
F.addmm({a}, {b}, {c}) | F.einsum("ij,kj->ik", {a}.float(), {b}.float()) | {a}.expm1() | {a}.hypot({b})
{a}.xlogy({b}) | N.scaled_dot_product_attention({a}, {b}, {c}) | N.smooth_l1_loss({a}, {b})
N.kl_div({a}, {b}, reduction="sum") | F.cat(({a}, {b}), {i}) | {a}.logaddexp({b})
F.cdist({a}, {b}.type_as({a})) | N.cosine_similarity({a}, {b}.type_as({a}), {i}, 1e-3) | {a}.logit(0.1)
{a}.clone() | {a}.masked_fill({m}, {s}) | ({a} * 0.37 + 0.11).sinc() | {a}.tan() | {a}.asinh() | N.mish({a})
N.l1_loss({a}.float(), {b}.float()) | N.huber_loss({a}, {b})
N.binary_cross_entropy_with_logits({a}, {b}) | N.nll_loss({a}, ints(0, 1, 1))
N.softsign({a}) | N.tanhshrink({a}) | N.selu({a}) | N.logsigmoid({a}) | N.glu({a}, {i})
N.rms_norm({a}, {a}.shape[-1:], eps=1) | F.linalg.vector_norm({a}, dim={i}) | N.softmin({a}, {i})
""")


def without_jumps(statements):
    """Those in which a rounding error makes no integer another one."""
    jumps = "floor_", ".long()", "{t}"
    return [text for text in statements if not any(jump in text for jump in jumps)]


STATEMENTS = {"exact": (VIEWS, WRITES, EXACT), "smooth": (VIEWS, without_jumps(WRITES), SMOOTH)}
# Of compiled programs: `i` is an index among the arguments, which may be out of bounds.
INDEXED = split("""
{a}[i] | {a}[..., i] | {a}.index_select(0, i) | {a}[i[0]] | {a}[i] += {s} | {a}[i] = {s}
{a}.index_add_(0, i, {a}[:2].clone()) | {a}.index_fill(0, i, {s}) | {a}.take(i) | N.embedding(i, {a})
{a}.long() // i.sum() | {a}.index_put((i,), F.ones(1).type_as({a})) | {a}.gather(0, i.unsqueeze(1))
{a}.narrow(0, 1, 2).t().mul_({s}) | {a}.diagonal().add_({b}.diagonal()) | {a}.expand(2, -1, -1)[0].add_({s})
{a}[:, ::2].copy_({b}[:, ::2].clone())
""")
STATE = split("""
{a} * FACTOR | {a} + config.bias | {a} * config.kind | layer({a}) | layer({a}.t()) | {a} + layer.total
{a} + 0 if OFFSET is None else {a} + OFFSET | {a} * 2 if getattr(config, "flag", False) else {a} + 0
{a} * layer.weight | {a}.detach() * layer.scale
""")
