"""
Generates text with a GPT-2 trained by train_gpt2.py or finetune_gpt2.py.

    python inference_gpt2.py work_dir/gpt2-small-shakespeare/ --prompt "ROMEO:" --max_new_tokens 500
"""

import argparse
import codecs
import time
from pathlib import Path

import mytorch
from mytorch.models import GPT2
from mytorch.tokenizers import load_tokenizer
from mytorch.utils.scripts import usable_device


def arguments():
    parser = argparse.ArgumentParser(
        description="Generates text with a trained GPT-2.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("folder", help="output folder of train_gpt2.py or finetune_gpt2.py")
    add("--prompt", default="\n", help="text to continue")
    add("--max_new_tokens", type=int, default=500, help="number of tokens to generate")
    add("--temperature", type=float, default=0.8,
        help="divides the logits; 0 selects the most probable token")
    add("--topk", type=int, default=200, help="sample from the k most probable tokens; 0: from all")
    add("--seed", type=int, default=1337, help="seed of the random number generator")
    add("--device", default="cuda" if mytorch.cuda.is_available() else "cpu", type=usable_device,
        help="cpu, cuda or cuda:N")
    add("--no_cache", action="store_true",
        help="recompute all keys and values for each token: slower, the same text")
    args = parser.parse_args()
    if args.max_new_tokens < 1 or args.temperature < 0 or args.topk < 0:
        parser.error("--max_new_tokens must be at least 1, --temperature and --topk at least 0")
    if not args.prompt:
        parser.error("--prompt must have at least one character")
    return args


def main():
    args = arguments()
    folder = Path(args.folder)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        if not (folder / name).exists():
            raise SystemExit(
                f"{folder} contains no {name}; train a model first: bash train_gpt2.sh shakespeare"
            )
    try:
        tokenizer = load_tokenizer(folder)
        model = GPT2.from_pretrained(folder, device=args.device)
    except (OSError, ValueError) as error:  # a message without a traceback
        raise SystemExit(str(error)) from None
    try:
        ids = tokenizer.encode(args.prompt)
    except ValueError as error:
        if args.prompt != "\n":
            raise SystemExit(f"--prompt: {error}") from None
        ids = [0]  # of a text without line breaks
    prompt = mytorch.tensor([ids], device=args.device)  # (1, T)

    print(args.prompt, end="", flush=True)
    text = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a character may span several tokens
    start, count = time.perf_counter(), 0
    try:
        for token in model.stream(
            prompt, args.max_new_tokens, args.temperature, args.topk or None,
            generator=mytorch.Generator(device=args.device).manual_seed(args.seed),
            use_cache=not args.no_cache,
        ):
            print(text.decode(tokenizer.decode_bytes([token.item()])), end="", flush=True)
            count += 1
    except KeyboardInterrupt:
        pass
    seconds = time.perf_counter() - start
    print(f"\n\n[{count} tokens, {count / seconds:,.0f} tokens/s]")


if __name__ == "__main__":
    main()
