"""
Chats with a pretrained language model in the terminal.

    python -m mytorch.chat smollm2                        a model of the Hugging Face Hub
    python -m mytorch.chat path/to/folder                 Hugging Face's layout
    python -m mytorch.chat model.gguf --prompt "Hello"    one answer, then the end
"""

from __future__ import annotations

import argparse
import sys
import time

import mytorch

from ..utils.scripts import usable_device
from .conversation import NAMES, Chat


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m mytorch.chat", description="Chats with a pretrained language model.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("model", help=f"a folder, a GGUF file, {', '.join(NAMES)}, or a name on the Hugging Face Hub")
    add("--prompt", help="answer this message and end; - reads it from standard input")
    add("--system", help="how to answer, as a first message")
    add("--max_new_tokens", type=int, default=512, help="tokens of an answer at most")
    add("--temperature", type=float, default=0.7, help="divides the logits; 0: the most probable token")
    add("--top_p", type=float, default=0.9, help="sample from the fewest tokens of this probability")
    add("--min_p", type=float, help="sample from tokens of this fraction of the largest probability")
    add("--repetition_penalty", type=float, default=1.1, help="divides logits of tokens that occurred")
    add("--seed", type=int, help="of the random numbers")
    add("--dtype", default="float32", choices=("float32", "float16", "bfloat16"), help="of the weights")
    add("--quantize", choices=("q8_0", "q4_0", "q4_1"), help="of the weights: smaller, faster on a CPU")
    add("--special_tokens", action="store_true", help="a message may spell them, as in transformers")
    add("--device", default="cuda" if mytorch.cuda.is_available() else "cpu", type=usable_device,
        help="cpu, cuda or cuda:N")
    return parser.parse_args()


def answer(chat: Chat, text: str, args: argparse.Namespace) -> None:
    """Prints the answer as it is generated, then the speed; Ctrl-C ends the answer alone."""
    names = ("max_new_tokens", "temperature", "top_p", "min_p", "repetition_penalty", "seed")
    start, pieces = time.perf_counter(), 0
    try:
        for piece in chat.stream(text, **{name: getattr(args, name) for name in names}):
            print(piece, end="", flush=True)
            pieces += 1
    except KeyboardInterrupt:
        pass
    print()
    if sys.stderr.isatty():
        print(f"[{pieces / (time.perf_counter() - start):.0f} pieces/s]", file=sys.stderr)


def main() -> None:
    args = arguments()
    try:
        allowed = "all" if args.special_tokens else ()
        chat = Chat.load(args.model, args.system, args.dtype, args.device, args.quantize, allowed)
        if args.prompt is not None:
            answer(chat, sys.stdin.read() if args.prompt == "-" else args.prompt, args)
            return
        print(f"{chat.model.num_parameters():,} parameters. Ctrl-C ends an answer, Ctrl-D the program.")
        while True:
            try:
                text = input("\n> ")
            except (EOFError, KeyboardInterrupt):
                print()
                return
            try:
                if text.strip():
                    answer(chat, text, args)
            except ValueError as error:  # of this message
                print(error, file=sys.stderr)
    except (ImportError, OSError, ValueError) as error:  # a message without a traceback
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
