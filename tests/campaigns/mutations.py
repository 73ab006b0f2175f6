"""Damage: to bytes, and to the structure of JSON."""

import json
import re

TEXTS = ["", "a" * 70_000, "\ud800", "\0", "../../x", "/etc/hostname", "1", "nan", "$tensor", "é" * 3]
NUMBERS = [0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, 1e308, float("inf"), float("nan")]
VALUES = [None, True, False, [], {}, [[]], [None], {"": None}, {"$tensor": "x"}, *TEXTS, *NUMBERS]
BYTES = [b"\0", b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"{", b"]", b'"', b"\n", b"\xed\xa0\x80"]
DEEP = [10, 300, 3000, 100_000]


def damaged(random, data):
    """The bytes with a small or large change."""
    at = random.randrange(len(data) + 1)
    size = min(random.choice([1, 2, 8, 100, 5000]), len(data) - at)
    flipped = 1 << random.randrange(8)
    chunk, other = data[at : at + size], random.randrange(len(data) + 1)
    return random.choice([
        lambda: data[:at],
        lambda: data[at:],
        lambda: data[:at] + data[at + size :],
        lambda: data[:at] + chunk + data[at:],
        lambda: data[:other] + chunk + data[other:],
        lambda: data[:at] + random.choice(BYTES) + data[at:],
        lambda: data[:at] + random.choice(BYTES) + data[at + 1 :],
        lambda: data[:at] + random.randbytes(size) + data[at + size :],
        lambda: data[:at] + bytes(byte ^ flipped for byte in data[at : at + 1]) + data[at + 1 :],
        lambda: data + random.randbytes(9),
    ])()


def restructured(random, text):
    """The text of a JSON value whose structure is another one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # it is damaged already
        return text
    raw = {}  # text that json.dumps would not write, by its stand-in
    new = _changed(random, value, raw)
    text = json.dumps(new, ensure_ascii=random.random() < 0.5)
    for name, inside in raw.items():
        text = text.replace(json.dumps(name), inside)
    return text


def _changed(random, value, raw):
    """A copy in which something is another value: anywhere, since containers are entered at random."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        return random.choice([_dict_changed, _entered, _entered, _entered])(random, value, key, raw)
    if isinstance(value, list) and value and random.random() < 0.85:
        key = random.randrange(len(value))
        return random.choice([_list_changed, _entered, _entered, _entered])(random, value, key, raw)
    return _odd(random, value, raw)


def _entered(random, value, key, raw):
    new = value.copy()
    new[key] = _changed(random, value[key], raw)
    return new


def _dict_changed(random, value, key, raw):
    rest = {name: item for name, item in value.items() if name != key}
    if random.random() < 0.3:
        return rest
    if random.random() < 0.5:
        return {**rest, random.choice([*TEXTS, *value]): value[key]}
    pairs = [*value.items(), (key, _odd(random, value[key], raw))]  # the key is there twice
    return _raw(raw, "{" + ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in pairs) + "}")


def _list_changed(random, value, key, raw):
    return random.choice([
        lambda: value[:key] + value[key + 1 :],
        lambda: value[:key] + [value[key]] * 2 + value[key + 1 :],
        lambda: value[::-1],
        lambda: dict.fromkeys(map(str, range(len(value)))),
    ])()


def _odd(random, value, raw):
    def deep():
        depth = random.choice(DEEP)
        left, right = random.choice([("[", "]"), ('{"a": ', "}")])
        return _raw(raw, left * depth + "1" + right * depth)

    def number():
        added = random.choice([-1, 1, 0.5, 10**6])
        return value + (added if abs(value) < 1e300 else 1) if isinstance(value, int) else str(value)

    def text():
        return re.sub("[0-9a-f]", "7", value, count=1) if isinstance(value, str) else [value]

    def digits():
        return _raw(raw, "9" * random.choice([30, 5000]))

    return random.choice([*[lambda: random.choice(VALUES)] * 4, deep, number, text, digits])()


def _raw(raw, text):
    name = f"raw {len(raw)}"
    for other, inside in raw.items():
        text = text.replace(json.dumps(other), inside)
    raw[name] = text
    return name
