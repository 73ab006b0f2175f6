"""A generator and a critic with spectral and weight norm, taken apart again at the end."""

import torch
from mount import fill, numbers
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


def start(critic):
    """Singular vectors, the same in every framework."""
    for name, buffer in critic.named_buffers():
        buffer.copy_(nn.functional.normalize(numbers(*buffer.shape, seed=len(name)), dim=0))
    return critic


def losses():
    G = fill(nn.Sequential(weight_norm(nn.Linear(4, 16)), nn.LeakyReLU(0.2), nn.Linear(16, 8)))
    D = nn.Sequential(spectral_norm(nn.Linear(8, 16)), nn.ReLU(), spectral_norm(nn.Linear(16, 1)))
    D = start(fill(D))
    for_g = torch.optim.Adam(G.parameters(), lr=1e-2, betas=(0.5, 0.999))
    for_d = torch.optim.RMSprop(D.parameters(), lr=1e-3)
    criterion, real = nn.BCEWithLogitsLoss(), numbers(12, 8, seed=5)
    ones, zeros = torch.ones(12, 1), torch.zeros(12, 1)
    for i in range(5):
        fake = G(numbers(12, 4, seed=10 + i))
        loss_d = criterion(D(real), ones) + criterion(D(fake.detach()), zeros)
        for_d.zero_grad()
        loss_d.backward()
        for_d.step()
        loss_g = criterion(D(fake), ones)
        for_g.zero_grad()
        loss_g.backward()
        for_g.step()
        yield loss_d.item()
        yield loss_g.item()
    parametrize.remove_parametrizations(G[0], "weight")
    assert not parametrize.is_parametrized(G[0]) and sorted(G[0].state_dict()) == ["bias", "weight"]
    yield G(numbers(12, 4)).mean().item()
