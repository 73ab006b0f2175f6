"""GPT-2 in mytorch, through its public interface: training in any precision, and generation."""

import mytorch  # before NumPy, as in a user's script: the import may choose OpenBLAS's kernels
from benchmarks.gpt import BETAS, MAX_GRAD_NORM, WEIGHT_DECAY, Config, initial_weights, learning_rate
from mytorch import Tensor
from mytorch.accelerate import GradScaler, MixedPrecisionOptimizer, half_parameters
from mytorch.models import GPT2, GPT2Config
from mytorch.nn import functional as F


def make_model(config: Config, device: str = "cpu") -> GPT2:
    """Returns the model without biases and dropout, with the weights that PyTorch's gets."""
    sizes = {name: getattr(config, name) for name in ("n_layer", "n_head", "n_embd", "context_length")}
    model = GPT2(GPT2Config(config.vocab_size, bias=False, **sizes))
    model.load_state_dict(initial_weights(config))
    return model.to(device)


class Trainer:
    """A model and its AdamW; in half precision with float32 masters, in float16 with a loss scale.

    Args:
        dtype: of the model: "float32", "float16" or "bfloat16".
        mode: "eager" or "captured": forward and backward are a CUDA graph.
    """

    def __init__(self, config: Config, device: str = "cpu", dtype: str = "float32", mode: str = "eager"):
        self.model, self.mode, self.steps = make_model(config, device), mode, 0
        is_half = dtype != "float32"
        values = half_parameters(self.model, dtype) if is_half else {}
        self.optimizer = mytorch.optim.AdamW(self.model.parameter_groups(WEIGHT_DECAY), betas=BETAS)
        if is_half:
            self.optimizer = MixedPrecisionOptimizer(self.optimizer, values)
        self.scaler = GradScaler(enabled=dtype == "float16")
        self.one = mytorch.ones((), device=device)
        self.graphed = None  # the graph; a bound method here would keep the trainer alive

    def forward_backward(self, x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        """Computes the gradients of `scale` times the loss; returns the loss, a mean in float32."""
        self.model.zero_grad()
        logits = self.model(x)
        losses = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1), reduction="none")
        loss = losses.float().mean()
        loss.backward(scale)
        return loss.detach()

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes gradients and updates; returns the loss, without waiting for a GPU."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.steps)
        self.steps += 1
        inputs = x, y, self.scaler.scale(self.one)  # the scale changes
        if self.mode == "captured" and self.graphed is None:
            self.graphed = mytorch.cuda.make_graphed_step(self.forward_backward, inputs)
        loss = (self.graphed or self.forward_backward)(*inputs).clone()
        if self.scaler.is_enabled():
            self.scaler.unscale_(self.optimizer)
        elif isinstance(self.optimizer, MixedPrecisionOptimizer):
            self.optimizer.collect_grads()
        self.optimizer.clip_grad_norm(MAX_GRAD_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


def generation(config: Config, prompt: Tensor, new: int):
    """Returns a function that generates `new` tokens after the prompt (1, T), as a list of both."""
    model = make_model(config).eval()
    return lambda: model.generate(prompt, new, temperature=0)[0].tolist()
