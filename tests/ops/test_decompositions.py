

ON_A_GPU = {
    **{name: (lambda F, a, name=name: getattr(F.linalg, name)(a))
       for name in ("inv", "det", "cholesky", "eigvalsh", "pinv", "matrix_rank", "svdvals")},
    "det of 0": lambda F, a: F.linalg.det(a * 0), "slogdet": lambda F, a: F.linalg.slogdet(a)[1],
    "qr": lambda F, a: F.linalg.qr(a)[1], "eigh": lambda F, a: F.linalg.eigh(a)[0],
    "lstsq": lambda F, a: F.linalg.lstsq(a, a)[0], "solve": lambda F, a: F.linalg.solve(a, a),
    "triangular": lambda F, a: F.linalg.solve_triangular(a, a, upper=True),
    "hermitian": lambda F, a: F.linalg.pinv(a, hermitian=True), "angle": lambda F, a: (a * 1j).angle(),
    "polar": lambda F, a: F.polar(a, a).abs(), "conj": lambda F, a: (a * 1j).conj().imag,
    "pairs": lambda F, a: F.view_as_real(F.view_as_complex(a[:, :2].contiguous()) ** 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name, fake_cuda):
    a = positive()
    theirs, mine = torch.tensor(a, requires_grad=True), mytorch.tensor(a, device="cuda:0", requires_grad=True)
    got, want = ON_A_GPU[name](mytorch, mine), ON_A_GPU[name](torch, theirs)
    assert got.device == "cuda:0" and got.requires_grad == want.requires_grad
    np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), rtol=1e-8, atol=1e-10)
    if want.requires_grad:
        got.sum().backward()
        want.sum().backward()
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-7, atol=1e-9)
