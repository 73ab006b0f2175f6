"""Complete models, implemented with the public API of mytorch."""

from .bert import Bert
from .bert_config import BertConfig
from .cache import KVCache
from .gpt2 import GPT2
from .gpt2_config import GPT2Config
from .llama import Llama
from .llama_config import LlamaConfig
from .sampling import Sampler

__all__ = ["Bert", "BertConfig", "GPT2", "GPT2Config", "KVCache", "Llama", "LlamaConfig", "Sampler"]
