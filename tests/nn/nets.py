"""A small model, the same in mytorch and in PyTorch."""


def net(library):
    """The same small model in either library: nested, a tied weight, buffers and an optional parameter."""

    class Net(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = library.nn.Embedding(5, 4)
            self.body = library.nn.Sequential(
                library.nn.Linear(4, 4), library.nn.GELU(), library.nn.LayerNorm(4)
            )
            self.head = library.nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight
            self.scale = library.nn.Parameter(library.ones(4))
            self.register_parameter("shift", None)
            self.register_buffer("seen", library.zeros(2))
            self.register_buffer("cache", library.ones(3), persistent=False)
            self.register_buffer("nothing", None)

        def forward(self, tokens):
            return self.head(self.body(self.embed(tokens)) * self.scale)

    return Net()
