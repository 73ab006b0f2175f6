"""What a printed figure says of the number behind it."""


def bounds(figure: str) -> tuple[float, float]:
    """The least and the greatest number that rounds to what is printed.

    >>> bounds("0.15")
    (0.145, 0.155)
    """
    half = 0.5 * 10.0 ** -len(figure.partition(".")[2])
    return float(figure) - half, float(figure) + half


def is_quotient(ratio: str, numerator: str, denominator: str) -> bool:
    """Whether the three can be rounded figures of a quotient and its two parts, none negative."""
    (low, high), (least, most), (smallest, largest) = map(bounds, (ratio, numerator, denominator))
    return low * smallest <= most and least <= high * largest
