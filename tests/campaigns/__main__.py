"""The command line of the campaigns."""

import argparse
import importlib
import os
import sys

os.environ.setdefault("MYTORCH_COMPILE", "wait")  # kernels in the background would be tested at times

from tests.campaigns import NAMES
from tests.campaigns.runner import Run


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--minutes", type=float, help="run cases for this long")
    parser.add_argument("--tries", type=int, help="or this many (default: as many as the ordinary suite)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="N", help="or case N alone")
    args = parser.parse_args()
    campaign = importlib.import_module(f"tests.campaigns.{args.name}")
    run = Run(campaign, args.seed)
    print(f"campaign {args.name}, seed {args.seed}", flush=True)
    if args.only is not None:
        run.cases(args.only, tries=1)
    elif args.minutes:
        run.cases(0, seconds=60 * args.minutes)
    else:
        run.cases(0, tries=args.tries or campaign.TRIES)
    print(run.table())
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
