"""OpenWebText as GPT-2 tokens: train.bin (about 9 billion, 17 GB), val.bin (4 million) and tokenizer.json.

    python prepare_data/prepare_owt.py --num_proc 8 --path_to_save data/openwebtext
    python prepare_data/prepare_owt.py --data_files a.jsonl https://example.org/b.parquet

Other documents: --dataset, or --data_files with text, JSONL and parquet files. As in nanoGPT, 0.05 % of the
documents are the validation split, and each document ends with the end-of-text token.

Started again after a kill, it continues: finished shards are kept in PATH_TO_SAVE/.shards until the end.
OpenWebText requires `pip install -e '.[train]'`, 54 GB of disk space for the download, and hours.
"""

import functools
import json
import multiprocessing
import os
import shutil
import signal
import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

sys.path.append(str(Path(__file__).resolve().parent.parent))  # runs without installing mytorch

from mytorch.tokenizers import gpt2_tokenizer, load_tokenizer
from mytorch.utils import atomic_write
from mytorch.utils.parent_death import die_with_parent
from mytorch.utils.reading import read_json, read_text
from prepare_data.common import PrepareError, argument_parser, atomic_folder, run
from prepare_data.documents import HubDataset, Source, check_space, open_file
from prepare_data.prepare_text import fraction

OPENWEBTEXT = "Skylion007/openwebtext"
OPENWEBTEXT_BYTES = 36e9  # of shards and train.bin, until the shards are deleted
SPLIT_SEED = 2357
SAMPLE = 1 << 20  # characters whose tokens are counted to estimate the size of all


class Job(NamedTuple):
    """The part of a source whose tokens become a shard."""

    index: int
    source: Source
    begin: int
    end: int
    num_bytes: int


class Settings(NamedTuple):
    """What all jobs need to know."""

    folder: Path  # of the shards
    tokenizer: str
    val_fraction: float


@functools.cache
def open_tokenizer(name: str) -> tuple[Any, str]:
    """Returns GPT-2's tokenizer for "gpt2", or that of a tokenizer.json or its folder; and the file."""
    try:
        if name == "gpt2":
            tokenizer = gpt2_tokenizer()
            text = json.dumps({"type": "gpt2", "vocab_size": tokenizer.vocab_size}) + "\n"
        else:
            tokenizer = load_tokenizer(name)
            text = read_text(Path(name) / "tokenizer.json" if Path(name).is_dir() else name)
    except (OSError, ValueError) as error:
        raise PrepareError(f"--tokenizer {name}: {error}") from None
    if getattr(tokenizer, "eos_token_id", None) is None:
        raise PrepareError(f"--tokenizer {name}: it has no token for the end of a text")
    if tokenizer.vocab_size > 2**16:
        raise PrepareError(f"--tokenizer {name}: {tokenizer.vocab_size:,} ids, but uint16 allows 65,536")
    return tokenizer, text


def encode(text: str, source: Source, name: str) -> list[int]:
    try:
        return open_tokenizer(name)[0].encode(text)
    except ValueError as error:
        raise PrepareError(f"{source.name}: {error}") from None


def shard_path(folder: Path, index: int, split: str) -> Path:
    return folder / f"{index:06}.{split}.bin"


def make_shard(job: Job, settings: Settings) -> None:
    """Writes the tokens of a part, each document of it to one of the splits."""
    end_of_text = open_tokenizer(settings.tokenizer)[0].eos_token_id
    rng = np.random.default_rng((SPLIT_SEED, job.index))
    tokens = {"val": array("H"), "train": array("H")}
    split = None
    for text, is_whole in job.source.read(job.begin, job.end):
        split = split or ("val" if rng.random() < settings.val_fraction else "train")
        tokens[split].extend(encode(text, job.source, settings.tokenizer))
        if is_whole:
            tokens[split].append(end_of_text)
            split = None
    for name, ids in tokens.items():  # a part with a train shard is finished
        with atomic_write(shard_path(settings.folder, job.index, name)) as partial:
            partial.write_bytes(ids)


def start_process(parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the others


def make_shards(jobs: list[Job], settings: Settings, num_proc: int) -> Iterator[Job]:
    """Makes the shards in several processes; yields each job when it is finished."""
    if num_proc == 1:
        for job in jobs:
            make_shard(job, settings)
            yield job
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_proc, context, start_process, (os.getpid(),)) as pool:
        futures = {pool.submit(make_shard, job, settings): job for job in jobs}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BrokenProcessPool:
            raise PrepareError("a process was killed, out of memory? Run it again to continue") from None
        finally:
            pool.shutdown(cancel_futures=True)


def check_plan(folder: Path, plan: dict) -> None:
    """Saves what the shards are made of; raises PrepareError if the folder has shards of something else."""
    path = folder / "plan.json"
    if path.exists():
        try:
            old = read_json(path)
        except ValueError as error:
            raise PrepareError(str(error)) from None
        changed = [name for name in plan if old.get(name) != plan[name]]
        if changed:
            raise PrepareError(f"{folder} is of a run with other {', '.join(changed)}: delete it")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(plan) + "\n", encoding="utf-8")


def estimated_bytes(jobs: list[Job], tokenizer: str) -> float:
    """Returns the size of all tokens, as far as the first documents tell."""
    for job in jobs:
        for text, _ in job.source.read(job.begin, job.end):
            if text := text[:SAMPLE]:
                num_tokens = len(encode(text, job.source, tokenizer))
                num_bytes = len(text.encode(errors="replace"))
                return 1.1 * 2 * num_tokens / num_bytes * sum(job.num_bytes for job in jobs)
    return 0.0


def join_shards(jobs: list[Job], shards: Path, folder: Path, tokenizer: str) -> None:
    """Writes train.bin, val.bin and tokenizer.json."""
    counts = {}
    with atomic_folder(folder) as partial:
        for split in ("train", "val"):
            with open(partial / f"{split}.bin", "wb") as file:
                for job in tqdm(jobs, desc=f"writing {split}.bin", unit="shard"):
                    with open(shard_path(shards, job.index, split), "rb") as shard:
                        shutil.copyfileobj(shard, file, 1 << 20)
                counts[split] = file.tell() // 2
            if not counts[split]:
                raise PrepareError(f"{split}.bin would be empty; choose another --val_fraction")
        (partial / "tokenizer.json").write_text(open_tokenizer(tokenizer)[1], encoding="utf-8")
    print(f"{folder}: train.bin {counts['train']:,} tokens, val.bin {counts['val']:,} tokens")


def prepare(args) -> None:
    folder, shards = args.path_to_save, args.path_to_save / ".shards"
    open_tokenizer(args.tokenizer)  # an error at once
    if args.data_files:
        files = enumerate(args.data_files)
        sources = [open_file(name, args.text_key, shards / "downloads", i) for i, name in files]
    else:
        if args.dataset == OPENWEBTEXT:
            check_space(folder, OPENWEBTEXT_BYTES)
        sources = [HubDataset(args.dataset, args.text_key, args.num_proc)]
    plan = {
        "files": [[source.name, *source.version] for source in sources],
        "tokenizer": open_tokenizer(args.tokenizer)[1],
        "val_fraction": args.val_fraction,
        "text_key": args.text_key,
    }
    check_plan(shards, plan)
    parts = [(source, *part) for source in sources for part in source.parts()]
    jobs = [Job(index, *part) for index, part in enumerate(parts)]
    todo = [job for job in jobs if not shard_path(shards, job.index, "train").exists()]
    written = sum(path.stat().st_size for path in shards.glob("*.bin"))
    check_space(folder, 2 * estimated_bytes(jobs, args.tokenizer) - written)
    total, settings = sum(job.num_bytes for job in jobs), Settings(shards, args.tokenizer, args.val_fraction)
    with tqdm(
        total=total, initial=total - sum(job.num_bytes for job in todo), desc="tokenizing", unit="B",
        unit_scale=True,
    ) as progress:
        for job in make_shards(todo, settings, args.num_proc):
            progress.update(job.num_bytes)
    join_shards(jobs, shards, folder, args.tokenizer)
    shutil.rmtree(shards)


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--path_to_save", type=Path, default="data/openwebtext", help="output folder; default: %(default)s")
    add("--dataset", default=OPENWEBTEXT, help="name on Hugging Face, or a folder; default: %(default)s")
    add("--data_files", nargs="+", metavar="FILE", help="paths and URLs of .txt, .jsonl and .parquet files")
    add("--text_key", default="text", help="key or column of the documents; default: %(default)s")
    add("--tokenizer", default="gpt2", help="gpt2, or a tokenizer.json or its folder; default: %(default)s")
    add("--val_fraction", type=fraction, default=0.0005,
        help="share of the documents in the validation split; default: %(default)s")
    num_proc = max(1, (os.cpu_count() or 1) // 2)
    add("--num_proc", type=int, default=num_proc, help="number of processes; default: %(default)s")
    args = parser.parse_args(argv)
    if args.num_proc < 1:
        parser.error(f"--num_proc must be at least 1, got {args.num_proc}")
    return run(lambda: prepare(args))


if __name__ == "__main__":
    sys.exit(main())
