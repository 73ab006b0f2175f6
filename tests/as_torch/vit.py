"""A vision transformer with drop path and mixed precision switched off, in the style of timm."""

import torch
import torch.nn as nn
from mount import fill, numbers
from torch.cuda.amp import GradScaler, autocast
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.init import trunc_normal_
from torch.nn.modules.utils import _pair
from torch.nn.parameter import Parameter


class PatchEmbed(nn.Module):
    def __init__(self, size=8, patch=4, width=16):
        super().__init__()
        (h, w), (p, q) = _pair(size), _pair(patch)
        self.num_patches = (h // p) * (w // q)
        self.proj = nn.Conv2d(3, width, kernel_size=(p, q), stride=(p, q))

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.gamma = Parameter(1e-2 * torch.ones(width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.gamma * self.attn(y, y, y, need_weights=False)[0]
        return x + self.gamma * self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = PatchEmbed(width=width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, self.embed.num_patches + 1, width))
        trunc_normal_(self.pos_embed, std=0.02)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        x = self.embed(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def losses():
    model = nn.DataParallel(fill(ViT()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)
    scaler, x, y = GradScaler(enabled=False), numbers(6, 3, 8, 8), torch.arange(6) % 5
    for _ in range(5):
        with autocast(enabled=False), sdpa_kernel(SDPBackend.MATH):
            loss = nn.CrossEntropyLoss(label_smoothing=0.1)(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield loss.item()
