"""Byte pair encoding: merging the symbols of a word, and learning the merges from a text.

Source: Sennrich et al. 2016, Neural Machine Translation of Rare Words with Subword Units, algorithm 1,
https://arxiv.org/abs/1508.07909
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

Pair = tuple[int, int]
MergeTable = dict[Pair, tuple[float, int]]  # of a pair of ids: its rank, and the id that replaces it


def merge(ids: list[int], table: MergeTable) -> list[int]:
    """Returns `ids` after all merges: again and again the pair of neighbours of the lowest rank is replaced,
    of equal ones the leftmost. A word of n ids takes O(n log n).

    >>> from mytorch.tokenizers.merges import merge
    >>> merge([1, 2, 1, 2, 3], {(1, 2): (0, 4), (4, 3): (1, 5)})
    [4, 5]
    """
    if len(ids) < 2:
        return ids
    symbols: list[int | None] = list(ids)  # None: part of the symbol to its left
    left, right = list(range(-1, len(ids) - 1)), list(range(1, len(ids) + 1))  # the neighbours
    symbols.append(None)  # the right neighbour of the last symbol
    heap = []  # (rank, position, merged id)
    for i, pair in enumerate(zip(ids, ids[1:], strict=False)):
        if pair in table:
            rank, merged = table[pair]
            heap.append((rank, i, merged))
    heapify(heap)
    while heap:
        rank, i, merged = heappop(heap)
        j = right[i]
        if table.get((symbols[i], symbols[j])) != (rank, merged):  # one of the two has been merged
            continue
        symbols[i], symbols[j] = merged, None
        right[i] = right[j]
        if right[i] < len(ids):
            left[right[i]] = i
        for a, b in ((left[i], i), (i, right[i])):
            if a >= 0 and (symbols[a], symbols[b]) in table:
                rank, merged = table[symbols[a], symbols[b]]
                heappush(heap, (rank, a, merged))
    return [symbol for symbol in symbols if symbol is not None]


def merge_table(vocab: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> MergeTable:
    """Returns the rank and the result of each merge.

    Raises:
        ValueError: a merge has a token that isn't in the vocabulary.
    """
    table: MergeTable = {}
    for rank, (a, b) in enumerate(merges):
        try:
            table.setdefault((vocab[a], vocab[b]), (rank, vocab[a + b]))
        except KeyError as error:
            raise ValueError(f"merge {rank:,}, {a!r} and {b!r}: {error} is not in the vocabulary") from None
    return table


def learn_merges(words: Mapping[tuple[int, ...], int], num_merges: int, first_id: int) -> list[Pair]:
    """Returns the merges that byte pair encoding learns: the most frequent pair of neighbours, `num_merges`
    times, each replaced by a new id before the next is counted.

    Of equally frequent pairs the smallest is taken: the lower left id, then the lower right id. This is the
    rule of Hugging Face's `BpeTrainer`, too.

    Args:
        words: the words of a text, as ids, and how often each occurs.
        first_id: id of the first merge's result; the others follow.

    Raises:
        ValueError: all words are single ids before `num_merges` merges.
    """
    corpus = _Corpus(words)
    merges: list[Pair] = []
    # Counts only decrease after they are pushed, except where a pair is pushed again: an entry whose count is
    # out of date is replaced when it is popped.
    heap = [(-count, pair) for pair, count in corpus.counts.items()]
    heapify(heap)
    while len(merges) < num_merges:
        if not heap:
            raise ValueError(f"the text has only {len(merges):,} merges, but {num_merges:,} were requested")
        count, pair = heappop(heap)
        if -count != corpus.counts[pair]:
            if corpus.counts[pair]:
                heappush(heap, (-corpus.counts[pair], pair))
            continue
        for new in corpus.replace(pair, first_id + len(merges)):
            heappush(heap, (-corpus.counts[new], new))
        merges.append(pair)
    return merges


class _Corpus:
    """Unique words with the counts of their pairs, which are updated in the words that a merge changes."""

    def __init__(self, words: Mapping[tuple[int, ...], int]):
        self.words = [list(word) for word in words]
        self.frequencies = list(words.values())
        self.counts: Counter[Pair] = Counter()
        self.where: defaultdict[Pair, set[int]] = defaultdict(set)  # the words that contain or contained it
        for i in range(len(self.words)):
            self._count(i, 1)

    def replace(self, pair: Pair, new_id: int) -> set[Pair]:
        """Replaces a pair in all words; returns the pairs that contain the new id."""
        new_pairs: set[Pair] = set()
        for i in self.where.pop(pair):
            self._count(i, -1)
            self.words[i] = word = _replaced(self.words[i], pair, new_id)
            self._count(i, 1)
            new_pairs.update(new for new in zip(word, word[1:], strict=False) if new_id in new)
        return new_pairs

    def _count(self, i: int, sign: int) -> None:
        word = self.words[i]
        for pair in zip(word, word[1:], strict=False):
            self.counts[pair] += sign * self.frequencies[i]
            if sign > 0:
                self.where[pair].add(i)


def _replaced(word: list[int], pair: Pair, new_id: int) -> list[int]:
    """Returns `word` with `new_id` for each occurrence of `pair`, from left to right."""
    first, second = pair
    result, i = [], 0
    while i < len(word):
        if word[i] == first and i + 1 < len(word) and word[i + 1] == second:
            result.append(new_id)
            i += 2
        else:
            result.append(word[i])
            i += 1
    return result
