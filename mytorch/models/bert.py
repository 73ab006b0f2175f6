"""
BERT: an encoder-only transformer, for embeddings of tokens and of sentences.

    tokens → sum of token, position and type embeddings → layer norm → num_hidden_layers × BertLayer

    BertLayer:  x = layer_norm(x + attention(x))
                x = layer_norm(x + dense(gelu(dense(x))))

Each token attends to all tokens, also to later ones. The names of parameters and options are Hugging Face's.

Source: Devlin, Chang, Lee & Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", 2018, https://arxiv.org/abs/1810.04805
"""

from __future__ import annotations

from os import PathLike

from mytorch import Tensor, nn
from mytorch.backends.device import DeviceLike
from mytorch.backends.dtypes import DTypeLike
from mytorch.nn import functional as F

from . import hugging_face
from .bert_config import BertConfig
from .pretrained import PretrainedModel


class BertEmbeddings(nn.Module):
    """The sum of the embeddings of tokens, positions and token types, normalized.

    Shapes: idx, token_types (B, T) -> (B, T, C)
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        c = config
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def forward(self, idx: Tensor, token_types: Tensor | None = None) -> Tensor:
        x = self.word_embeddings(idx) + self.position_embeddings.weight[: idx.shape[1]]
        types = self.token_type_embeddings
        x = x + (types.weight[0] if token_types is None else types(token_types))
        return self.dropout(self.LayerNorm(x))


class BertSelfAttention(nn.Module):
    """Multi-head self-attention without its output layer.

    Shapes: x (B, T, C), mask (B, 1, 1, T) -> (B, T, C)
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        c = config
        self.query, self.key, self.value = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(3))
        self.num_heads, self.dropout_p = c.num_attention_heads, c.attention_probs_dropout_prob

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, T, C / H)
            for project in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, mask, self.dropout_p if self.training else 0.0)
        return y.transpose(1, 2).flatten(2)


class BertOutput(nn.Module):
    """The end of both halves of a layer: layer_norm(residual + dense(x)).

    Shapes: x (B, T, in_features), residual (B, T, C) -> (B, T, C)
    """

    def __init__(self, config: BertConfig, in_features: int):
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class BertLayer(nn.Module):
    """Attention and MLP, each followed by a residual connection and a layer norm.

    Shapes: x (B, T, C), mask (B, 1, 1, T) -> (B, T, C)
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        c = config
        self.attention = nn.ModuleDict({"self": BertSelfAttention(c), "output": BertOutput(c, c.hidden_size)})
        self.intermediate = nn.ModuleDict({"dense": nn.LinearActivation(c.hidden_size, c.intermediate_size)})
        self.output = BertOutput(c, c.intermediate_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(self.intermediate["dense"](x), x)


class Bert(PretrainedModel):
    """BERT, the encoder.

    Args:
        config: configuration; `BertConfig.of_size("base")` is that of the published base model.

    >>> from mytorch.models import Bert, BertConfig
    >>> config = BertConfig(vocab_size=65, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> model = Bert(config).eval()
    >>> model(mytorch.zeros((1, 5), dtype=int)).shape
    Size([1, 5, 8])
    >>> model.embed(mytorch.zeros((1, 5), dtype=int)).shape
    Size([1, 8])
    """

    config_class = BertConfig
    file_prefix = "bert."
    file_ignored = ("*pooler.dense.*", "*.position_ids", "cls.*", "classifier.*", "qa_outputs.*")  # heads
    file_renamed = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

    def __init__(self, config: BertConfig):
        super().__init__()
        self.require_config(config)
        self.config = c = config
        layers = nn.ModuleList([BertLayer(c) for _ in range(c.num_hidden_layers)])
        self.bert = nn.ModuleDict({
            "embeddings": BertEmbeddings(c),
            "encoder": nn.ModuleDict({"layer": layers}),
        })
        if c.pooler:
            self.bert["pooler"] = nn.ModuleDict({"dense": nn.Linear(c.hidden_size, c.hidden_size)})
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=c.initializer_range)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, idx: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """Returns the features (B, T, C) of each token, those of padding included.

        Args:
            idx: (B, T) int64 tokens.
            mask: (B, T), 1 or True for tokens, 0 or False for padding, to which no token attends.
            token_types: (B, T) int64, which text a token belongs to; 0 by default.

        Raises:
            ValueError: the sequence is longer than `max_position_embeddings`, or the mask of another shape.
        """
        if idx.shape[1] > self.config.context_length:
            raise ValueError(
                f"{idx.shape[1]} tokens exceed the context length of {self.config.context_length}"
            )
        if mask is not None:
            if mask.shape != idx.shape:
                raise ValueError(f"the mask's shape {tuple(mask.shape)} isn't the tokens' {tuple(idx.shape)}")
            mask = mask.bool()[:, None, None, :]
        x = self.bert.embeddings(idx, token_types)
        for layer in self.bert.encoder.layer:
            x = layer(x, mask)
        return x

    def pool(self, features: Tensor) -> Tensor:
        """Returns tanh(dense(x)) (B, C) of the features (B, T, C) of the first token, with which BERT was
        trained to tell whether its second text follows the first.

        Raises:
            ValueError: the model has no pooler.
        """
        if not self.config.pooler:
            raise ValueError("this model has no pooler; load or make it with pooler=True")
        return self.bert.pooler["dense"](features[:, 0]).tanh()

    def embed(
        self, idx: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None,
        normalize: bool = False,
    ) -> Tensor:
        """Returns an embedding (B, C) of each sequence: the mean of the features of its tokens.

        Args:
            idx, mask, token_types: see `forward`; padding has no part in the mean.
            normalize: of length 1, so that products of embeddings are the cosines of their angles.

        Raises:
            ValueError: a sequence is all padding.
        Source: Reimers & Gurevych, "Sentence-BERT", 2019, https://arxiv.org/abs/1908.10084, section 3.
        """
        x = self.forward(idx, mask, token_types)
        if mask is None:
            mean = x.mean(1)
        else:
            kept = mask.bool().to(x.dtype).unsqueeze(-1)  # (B, T, 1)
            counts = kept.sum(1)
            if not counts.all():
                raise ValueError(f"a sequence is all padding: the rows have {counts[:, 0].tolist()} tokens")
            mean = (x * kept).sum(1) / counts
        return F.normalize(mean, dim=-1) if normalize else mean

    @classmethod
    def from_pretrained(
        cls, path_or_name: str | PathLike, dtype: DTypeLike = "float32", device: DeviceLike = None,
        revision: str | None = None, pooler: bool = False,
    ) -> Bert:
        """Returns a pretrained model; heads for tasks in the file are left out.

        Args:
            path_or_name, dtype, device, revision: see `PretrainedModel.from_pretrained`.
            pooler: load the pooler, too; not all files have one.
        """
        return hugging_face.load(cls, path_or_name, dtype, device, revision, pooler=pooler)
