"""Tables whose rows a gather can read straight from the file, so that they never lie in memory whole: embeddings.

Such a table is a raw weight with a checksum for each few rows, not for each mebibyte, so that a row is checked without
reading much beside it.
"""

from __future__ import annotations

from typing import NamedTuple

from .attributes import int_attr
from .ir import DTYPES, Graph, Node, WeightSource

ROW_BYTES_MAX = 64 << 10
CHUNK_BYTES_MIN = 4096
"""Fewest bytes of the rows under one checksum: most storage reads no less at a time."""
PANEL_BYTES_MIN = 512
"""Fewest bytes of a panel of a table, which are under one checksum: of 64 columns in 4 bits."""
TABLE_BYTES_MIN = 64 << 10
"""Fewest bytes of a table that may stay in the file."""
READ_SHARE = 2
"""A gather that reads more than this fraction of the table (1/READ_SHARE) loads it whole."""
GATHERS = "gather", "gather_panels"
"""Operators that pick rows of a table."""


class Table(NamedTuple):
    """A constant that a gather picks rows from; of a weight in panels each panel counts as a row."""

    weight: int
    row_bytes: int
    rows: int
    """Number of rows that the gather picks."""
    least: int = CHUNK_BYTES_MIN
    """Fewest bytes under one checksum."""

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the rows under one checksum."""
        return -(-self.least // self.row_bytes) * self.row_bytes


def table_of(graph: Graph, node: Node) -> Table | None:
    """The table that ``node`` picks rows of, if it may stay in the file."""
    if not (node.op == "gather" and int_attr(node, "axis") == 0) and node.op != "gather_panels":
        return None
    table, picked = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[1]]
    if table.weight < 0 or table.root >= 0 or not table.shape or not picked.size:
        return None
    row_bytes = table.size // table.shape[0] * DTYPES[table.dtype].itemsize
    found = Table(table.weight, row_bytes, picked.size)
    if node.op == "gather_panels":  # a product reads them, too, so they need not be here whole as well
        return found._replace(least=1) if table.nbytes > TABLE_BYTES_MIN else None
    if row_bytes > ROW_BYTES_MAX or _depends(graph.weights[table.weight].source) or table.nbytes <= TABLE_BYTES_MIN:
        return None
    return found if found.rows * found.chunk_bytes <= table.nbytes // READ_SHARE else None


def _depends(source: WeightSource | None) -> bool:
    """Return whether the numbers of a table depend on sizes."""
    if source is None:
        return False
    from .sources import depends  # graphs of artifacts have none, and importing the module takes memory of sessions

    return depends(source)
