"""
Read handwritten digits: scikit-learn's 1797 images of 8x8 pixels, a quarter of them kept for the test.

    python -m examples.digits --model mlp     two linear layers
    python -m examples.digits --model conv    a small convolutional network

Both classify more than 97 % of the test digits correctly, after a few seconds.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import mytorch
from mytorch import nn
from mytorch.utils.data import DataLoader, TensorDataset


def load(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Returns (training, test): images (N, 1, 8, 8) of pixels in [0, 1], and their digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("examples/digits.py needs scikit-learn: pip install -e '.[examples]'")
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    images = mytorch.from_numpy(digits.images[order, None].astype("float32") / 16)
    labels = mytorch.from_numpy(digits.target[order].astype("int64"))
    cut = len(order) * 3 // 4
    return TensorDataset(images[:cut], labels[:cut]), TensorDataset(images[cut:], labels[cut:])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))


def conv() -> nn.Module:
    def block(channels: int, out_channels: int) -> list[nn.Module]:
        convolution = nn.Conv2d(channels, out_channels, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(out_channels), nn.ReLU()]

    return nn.Sequential(
        *block(1, 16),  # (N, 16, 8, 8)
        *block(16, 32),
        nn.MaxPool2d(2),  # (N, 32, 4, 4)
        *block(32, 64),
        nn.AdaptiveAvgPool2d(1),  # (N, 64, 1, 1)
        nn.Flatten(),
        nn.Linear(64, 10),
    )


MODELS = {"mlp": mlp, "conv": conv}


def train(model: nn.Module, data: TensorDataset, test: TensorDataset, epochs: int, lr: float) -> None:
    # The last batch of an epoch would be 3 images: too few for the statistics of BatchNorm.
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=lr)
    schedule = mytorch.optim.lr_scheduler.OneCycleLR(optimizer, lr, epochs * len(loader))
    for epoch in range(1, epochs + 1):
        total = 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch:3}  loss {total / len(loader):.4f}  test accuracy {accuracy(model, test):.2%}")


@mytorch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Returns the fraction of correct predictions."""
    images, labels = data.tensors
    model.eval()
    predicted = model(images).argmax(1)
    model.train()
    return (predicted == labels).float().mean().item()


def main(arguments: list[str] | None = None) -> float:
    """Trains; returns the accuracy on the test images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="conv")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-2, help="the largest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    mytorch.manual_seed(options.seed)
    data, test = load(options.seed)
    model = MODELS[options.model]()
    print(f"{options.model}: {sum(p.numel() for p in model.parameters()):,} parameters, {len(data)} images")
    train(model, data, test, options.epochs, options.lr)
    return accuracy(model, test)


if __name__ == "__main__":
    main()
