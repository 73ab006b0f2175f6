"""A program as users write them: test_stubs.py has it checked by mypy."""
import mytorch
import mytorch.nn.functional as F
import mytorch.special
from mytorch import Tensor, nn, optim
from mytorch.cuda.amp import autocast
from mytorch.nn.modules import Linear
from mytorch.utils.checkpoint import checkpoint
from mytorch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2, width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(F.relu(self.hidden(x))))


mytorch.manual_seed(0)
x = mytorch.randn(64, 2)
y = x.sum(1, keepdim=True) > 0
model = Net(8)
layers = nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Dropout(0.1))
optimizer = optim.AdamW([*model.parameters(), *layers.parameters()], lr=1e-2)
schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
for inputs, target in DataLoader(TensorDataset(x, y.float()), batch_size=16, shuffle=True):
    loss = F.binary_cross_entropy_with_logits(model(inputs), target) + layers(inputs).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()

w = mytorch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
z: Tensor = mytorch.exp(w).T.transpose(0, 1) @ w.mT
z.sum().backward()


@mytorch.no_grad()
def update(lr: float) -> None:
    for p in model.parameters():
        if p.grad is not None:
            p -= lr * p.grad


update(0.1)
with mytorch.no_grad():
    w -= 0.1 * w.grad
    total: Tensor = mytorch.cat([w, z], dim=0).softmax(-1)
print(w.grad.norm(), total.shape[0], total[0, 1].item() > 0, z.max(dim=1).values, w.dtype == mytorch.float32)
values, indices = mytorch.topk(z, 1, dim=1)
weights = mytorch.where(z > 0, z, mytorch.zeros_like(z)).to("cpu", mytorch.float64)
with autocast(enabled=False):
    hidden: Tensor = checkpoint(Linear(2, 8), mytorch.special.expit(x), use_reentrant=False)
program = mytorch.capture(mytorch.exp, x).optimized(mode="default")
source: str = program.source()
print(source, program.memory().peak, program(x), program.chunked("1 MB").rows)
