"""The table of functions: the class of each, which dims it keeps, its floating-point operations."""

from .composites import COMPOSITES, Call, labels_of_composite
from .kinds import KINDS, kind_of
from .labels import Labels, Origin, arrays_in
from .table import TABLE, Row, flops_of, kept_dims, labels_of, row_of, writes

__all__ = [
    "COMPOSITES", "Call", "KINDS", "Labels", "Origin", "Row", "TABLE", "arrays_in", "flops_of", "kept_dims",
    "kind_of", "labels_of", "labels_of_composite", "row_of", "writes",
]
