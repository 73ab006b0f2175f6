"""OpenWebText as GPT-2 tokens: train.bin (about 9 billion, 17 GB), val.bin (4 million) and tokenizer.json.

As in nanoGPT, 0.05 % of the documents are the validation split, and each document ends with the end-of-text
token. Requires `pip install -e '.[train]'` and 54 GB of disk space for the download; takes hours.
"""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent))  # runs without installing mytorch

from prepare_data.common import PrepareError, argument_parser, atomic_folder, run

VAL_FRACTION = 0.0005
SPLIT_SEED = 2357
NUM_SHARDS = 1024  # one shard at a time is loaded into memory


def import_packages():
    """Returns the modules `datasets` and `tiktoken`; raises PrepareError if one is not installed."""
    try:
        import datasets
        import tiktoken
    except ImportError as error:
        raise PrepareError(f"{error.name} is missing: pip install -e '.[train]'") from None
    return datasets, tiktoken


def tokenize(documents, encoding, num_proc: int) -> dict:
    """Returns the splits "train" and "val" with the columns `ids` (tokens) and `len`."""
    splits = documents.train_test_split(test_size=VAL_FRACTION, seed=SPLIT_SEED, shuffle=True)

    def encode(document: dict) -> dict:
        ids = [*encoding.encode_ordinary(document["text"]), encoding.eot_token]
        return {"ids": ids, "len": len(ids)}

    return {
        name: splits[split].map(
            encode, remove_columns=documents.column_names, desc=f"tokenizing {name}", num_proc=num_proc
        )
        for name, split in (("train", "train"), ("val", "test"))
    }


def shards(split, num_shards: int = NUM_SHARDS) -> Iterable[np.ndarray]:
    """Yields the token ids of a tokenized split, one array per shard."""
    num_shards = min(num_shards, len(split))
    for index in range(num_shards):
        shard = split.shard(num_shards=num_shards, index=index, contiguous=True).with_format("numpy")
        yield np.concatenate(list(shard[:]["ids"]))


def write_tokens(path: Path, arrays: Iterable[np.ndarray], num_tokens: int) -> None:
    """Writes token arrays with a total of `num_tokens` tokens to one uint16 file."""
    from tqdm import tqdm

    if num_tokens == 0:
        raise PrepareError(f"{path.name} would be empty")
    tokens = np.memmap(path, dtype=np.uint16, mode="w+", shape=(num_tokens,))
    start = 0
    with tqdm(total=num_tokens, desc=f"writing {path.name}", unit="token", unit_scale=True) as progress:
        for array in arrays:
            tokens[start : start + len(array)] = array
            start += len(array)
            progress.update(len(array))
    if start != num_tokens:
        raise PrepareError(f"{path.name}: expected {num_tokens:,} tokens, got {start:,}")
    tokens.flush()


def prepare(dataset: str, folder: Path, num_proc: int) -> None:
    datasets, tiktoken = import_packages()
    try:
        encoding = tiktoken.get_encoding("gpt2")
        documents = datasets.load_dataset(dataset, split="train", num_proc=num_proc)
    except Exception as error:  # both download, and raise errors of several libraries
        raise PrepareError(f"{dataset} could not be loaded: {type(error).__name__}: {error}") from error
    with atomic_folder(folder) as partial:
        for name, split in tokenize(documents, encoding, num_proc).items():
            lengths = split.select_columns("len").with_format("numpy")[:]["len"]
            num_tokens = int(lengths.sum(dtype=np.int64))
            write_tokens(partial / f"{name}.bin", shards(split), num_tokens)
            print(f"{name}.bin: {num_tokens:,} tokens")
        tokenizer = {"type": "gpt2", "vocab_size": encoding.n_vocab}
        (partial / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--path_to_save", type=Path, default="data/openwebtext", help="output folder; default: %(default)s"
    )
    parser.add_argument(
        "--dataset",
        default="Skylion007/openwebtext",
        help="name of the dataset on Hugging Face; default: %(default)s",
    )
    num_proc = max(1, (os.cpu_count() or 1) // 2)
    parser.add_argument(
        "--num_proc",
        type=int,
        default=num_proc,
        help="number of processes for download and tokenization; default: %(default)s",
    )
    args = parser.parse_args(argv)
    return run(lambda: prepare(args.dataset, args.path_to_save, args.num_proc))


if __name__ == "__main__":
    sys.exit(main())
