"""A variational autoencoder of PyTorch's examples; its state goes through a file in memory."""

import io

import torch
import torch.backends.cudnn as cudnn
from mount import fill, numbers
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(36, 20), nn.Linear(20, 4), nn.Linear(20, 4)
        self.fc3, self.fc4 = nn.Linear(4, 20), nn.Linear(20, 36)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        return mu + eps * torch.exp(0.5 * logvar)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 36))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 36), reduction="sum")
    return BCE - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def losses():
    cudnn.benchmark = True
    torch.manual_seed(1)
    use_mps = torch.backends.mps.is_available()
    device = torch.device("cuda" if torch.cuda.is_available() else "mps" if use_mps else "cpu")
    device = torch.device("cpu") if device.type == "cuda" else device
    model = fill(VAE()).to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    data = torch.sigmoid(numbers(8, 1, 6, 6)).to(device)
    for i in range(6):
        recon, mu, logvar = model(data, numbers(8, 4, seed=i))
        loss = loss_function(recon, data, mu, logvar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss.item() / len(data)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "epoch": 6}, file)
    file.seek(0)
    again = VAE()
    again.load_state_dict(torch.load(file, map_location=device)["model"])
    with torch.no_grad():
        yield again(data, numbers(8, 4))[0].mean().item()
