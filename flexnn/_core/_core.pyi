"""Types of the extension module; what things mean stands in the .pxi files."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T")
_Params = NDArray[np.int32]
_Readable = bytes | bytearray | memoryview | NDArray[Any]

NR: int
PLANAR_PIXELS: int
PARAM_WORDS: int
BASE_FILE: int
BASE_SPILL: int
SPILL_FROM: int

def is_memory_file(fd: int) -> bool: ...

MAX_INPUTS: int
AHEAD_MAX: int
DIRECT_ALIGN: int
MAX_THREADS: int
SEARCH_BLOCKS_MAX: int
PLACE_ORDERS: int
OPS: tuple[str, ...]
FIELDS: dict[str, tuple[tuple[str, bool], ...]]
ENUMS: dict[str, tuple[str, ...]]
RECORDS: dict[str, tuple[int, tuple[tuple[str, str, int, int], ...]]]
WEIGHT_FORMS: dict[str, tuple[int, int, int, int, int]]

CONSTANTS_MAX: int
TRAIL_FUNCTIONS: tuple[str, ...]
TRAIL_FLOATS: tuple[int, int]
ROUNDS_MAX: int

class OpenFile:
    fd: int
    def __init__(self, path: str | bytes, flags: int, mode: int = 0o666, *, dir_fd: int = -100) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...

class Ending:
    def __init__(self, engine: Engine | None, files: tuple[OpenFile, ...] = ()) -> None: ...
    def leave(self, run: object, leaving: list[Any]) -> None: ...
    def stay(self) -> None: ...

class TurnLock:
    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def if_free(self, call: Callable[[], object]) -> None: ...

class CallTurns:
    lock: TurnLock
    is_busy: bool
    leaving: list[Any]
    is_foreign: bool
    def __init__(self, forks: list[int]) -> None: ...
    def take(self, call: Callable[..., _T], failed: Callable[[BaseException], None], *arguments: object) -> _T: ...

def op_check(op: str, kernel: str, params: _Params) -> None: ...
def op_traits(op: str) -> frozenset[str]: ...
def op_panels(op: str, params: _Params) -> int: ...
def op_panel_bytes(op: str, params: _Params) -> int: ...
def op_workspace(op: str, kernel: str, params: _Params, isa: str | None = None) -> int: ...
def op_zeros(op: str, params: _Params) -> int: ...
def op_full_window(op: str, params: _Params) -> tuple[int, int, int, int]: ...
def node_needs(nodes: NDArray[Any], needs: NDArray[np.int64], windows: NDArray[np.int32]) -> int: ...
def op_units(
    op: str,
    kernel: str,
    params: _Params,
    window: tuple[int, int, int, int] | None,
    threads: int,
    isa: str | None = None,
) -> int: ...
def op_extent(op: str, params: _Params, operand: int) -> tuple[int, int]: ...
def adds_halves(isa: str | None = None) -> bool: ...
def conv_half_fits(params: _Params) -> bool: ...
def conv_kernel_fits(kernel: str, params: _Params) -> bool: ...
def panel_layout(wtype: str, slopes: bool, weights: int) -> tuple[int, int, int, int]: ...
def conv_is_narrow(cin: int, cout: int, group: int) -> bool: ...
def conv_cin_panel(cin: int, cout: int, group: int) -> int: ...
def form_fits(wtype: str, taps: int, cin_panel: int, cin_block: int) -> bool: ...
def exact_terms(wtype: str) -> int: ...
def multiplies_rounded(wtype: str) -> bool: ...
def conv_panel_cin(cin: int, cout: int, group: int, panel: int) -> int: ...
def isa_level(name: str | None = None) -> str: ...
def isa_levels() -> tuple[str, ...]: ...
def crc32c(buffer: _Readable, value: int = 0, *, path: int | None = None) -> int: ...
def crc32c_paths() -> int: ...
def measure_rates(isa: str | None = None) -> tuple[float, float]: ...
def run_op(
    op: str,
    kernel: str,
    params: _Params,
    inputs: Sequence[NDArray[Any]],
    out: NDArray[Any],
    weight: NDArray[np.float32] | None = None,
    window: tuple[int, int, int, int] | None = None,
    threads: int = 1,
    isa: str | None = None,
    offsets: Sequence[int] = (),
) -> None: ...

_I64 = NDArray[np.int64]
_I32 = NDArray[np.int32]

def place_order(sizes: _I64, first: _I32, last: _I32, order: int, numbers: _I32) -> None: ...
def blocks_live(sizes: _I64, first: _I32, last: _I32, live: _I64) -> None: ...
def blocks_pairs(sizes: _I64, first: _I32, last: _I32) -> int: ...
def blocks_top(sizes: _I64, first: _I32, last: _I32, address: _I64) -> int: ...
def place_in_order(
    sizes: _I64,
    first: _I32,
    last: _I32,
    order: _I32,
    address: _I64,
    *,
    first_fit: bool = False,
    hangs: NDArray[np.uint8] | None = None,
    ceiling: int = 0,
) -> None: ...
def place_by_time(sizes: _I64, first: _I32, last: _I32, address: _I64) -> None: ...
def place_gaps(sizes: _I64, first: _I32, last: _I32, address: _I64, begins: _I64, tops: _I64, most: int) -> bytes: ...
def place_search(
    sizes: _I64, first: _I32, last: _I32, capacity: int, nodes_max: int, address: _I64
) -> tuple[Literal["some", "none", "unknown"], int]: ...
def place_streams(
    steps: int,
    arena: int,
    align: int,
    fixed: _I64,
    sizes: _I64,
    use: _I64,
    forced: _I64,
    address: _I64,
    wait_steps: _I64,
    *,
    from_top: bool = False,
    is_large: bool = False,
) -> None: ...
def trail_replay(
    operations: _I32, conditions: _I32, values: _I64, givens: _I32 | None = None, given: Sequence[int] = ()
) -> bool: ...

BANDS_BARRED: int
BANDS_NO_START: int
BANDS_NO_END: int

def bands_find(
    tables: tuple[_I64, _I64, _I64],
    limits: tuple[int, int, int, int, int, int, int],
    enough: float,
    worst: int,
    barred: NDArray[np.uint8] | bytes,
    memo: _I64 | None = None,
) -> tuple[tuple[int, int, int, int, int, tuple[tuple[int, int, int, int], ...]] | None, int]: ...
def bands_rows(
    tables: tuple[_I64, _I64, _I64], first: int, last: int, bands: int, may_pair: int, rows: _I64
) -> tuple[tuple[int, int, int, int], ...]: ...
def trail_extents(columns: tuple[_I32, _I32, _I32, _I32, _I64], values: _I64, nbytes: _I64, starts: _I64) -> bool: ...
def check_told(
    columns: tuple[_I32, _I32, _I32, _I32, _I64], floats: _I32, order: _I64, also: _I64, ports: _I32, value_count: int
) -> None: ...
def trail_params(words: _I32, values: _I64, row_count: int, params: _I32 | None = None) -> bool: ...
def trail_pack(members: _I32, ends: _I32, parts: _I32, nbytes: _I64, starts: _I64) -> None: ...

class Refit:
    def __init__(
        self,
        *,
        nodes: NDArray[np.void],
        steps: NDArray[np.void],
        step_counts: _I32,
        offsets: _I64,
        roots: _I32,
        room: _I64,
        working: _I32,
        places: _I64,
        moved: _I32,
        first: _I32,
        last: _I32,
        order: _I32,
        base: int,
        zeros_count: int,
        threads: int,
        is_pinned: bool,
    ) -> None: ...
    def at(
        self,
        params: _I32,
        nbytes: _I64,
        offsets: _I64,
        chosen: _I32,
        nodes: NDArray[np.void],
        steps: NDArray[np.void],
        alike: tuple[_I64, _I64] | None = None,
    ) -> tuple[int, int]: ...

def relocate(
    nodes: NDArray[np.void],
    steps: NDArray[np.void],
    pinned: NDArray[np.void],
    loads: NDArray[np.void],
    split: int,
    front: int,
    rest: int,
) -> None: ...

class EngineError(RuntimeError):
    status: Literal[
        "params", "bounds", "index", "memory", "io", "eof", "checksum", "thread", "fork", "overlap", "running", "seal"
    ]
    index: int
    is_load: bool
    is_pinned: bool
    is_write: bool
    file_offset: int
    os_error: int

def table_workspace(chunk_bytes: int) -> int: ...
def raise_in(thread: int, kind: type[BaseException]) -> None: ...

class Engine:
    watch: Callable[[], object] | None
    def __init__(
        self,
        *,
        direct: bool = False,
        threads: int = 1,
        isa: str | None = None,
        poison: bool = False,
        jitter_seed: int = 0,
        noise_seed: int = 0,
        read_bytes_per_second: int = 0,
        trace: int = 0,
        fresh: bool = False,
        streams_last: bool = False,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    def rest(self, patient: bool = True) -> bool: ...
    def suspect(self) -> None: ...
    def trim(self, keep: bool = False) -> None: ...
    def loosen(self, is_loose: bool) -> None: ...
    def back(self) -> None: ...
    def forget(self, fd: int) -> None: ...
    def close(self, files: tuple[OpenFile, ...] | None = None) -> None: ...

_Repeated = tuple[list[NDArray[Any]], tuple[int, int, int]]

class Signature:
    def __init__(
        self,
        names: Sequence[str],
        inputs: Sequence[NDArray[Any]],
        order: Sequence[int],
        constants: Sequence[NDArray[Any]],
        outputs: Sequence[tuple[Sequence[int], np.dtype[Any]]],
        empty: Callable[..., NDArray[Any]],
        make: Callable[[list[NDArray[Any]]], list[NDArray[Any]]] | None = None,
        numbers: Mapping[int, bytes] | None = None,
    ) -> None: ...
    @property
    def buffer_count(self) -> int: ...

class BoundProgram:
    def __init__(
        self,
        engine: Engine,
        *,
        nodes: NDArray[Any],
        steps: NDArray[Any],
        pinned: NDArray[Any],
        loads: NDArray[Any],
        crcs: NDArray[np.uint32],
        arena_bytes: int,
        zeros_offset: int,
        zeros_count: int,
        io_bytes: Sequence[int] | NDArray[np.int64],
        input_count: int,
        groups: NDArray[np.uint32] | None = None,
        tables: NDArray[Any] | None = None,
        fd: int = -1,
        direct_fd: int = -1,
        spills: NDArray[Any] | None = None,
        spill_fd: int = -1,
        spill_direct_fd: int = -1,
        spill_bytes: int = 0,
    ) -> None: ...
    pinning: dict[str, int]
    bytes_written: int
    @property
    def trace(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]] | None: ...
    @property
    def spans(self) -> tuple[memoryview, memoryview] | None: ...
    @property
    def lanes(self) -> list[list[tuple[int, int]]] | None: ...
    @property
    def stalls(self) -> list[tuple[int, int]] | None: ...
    def run(self, buffers: Sequence[NDArray[Any]], then: Sequence[BoundProgram] = ()) -> dict[str, int]: ...
    def repeat(
        self, signature: Signature, feed: Mapping[str, Any], then: Sequence[BoundProgram] | None = None
    ) -> _Repeated | None: ...
    def close(self) -> None: ...

class Recording:
    def __init__(
        self,
        engine: Engine,
        *,
        programs: Sequence[BoundProgram],
        entries: NDArray[Any],
        slots: NDArray[Any],
        operands: NDArray[np.uint32],
        buffer_count: int,
        input_count: int,
        counter_count: int,
        looks_ahead: bool = True,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def entry(self) -> int: ...
    def turns(self, counter: int) -> int: ...
    def run(self, buffers: Sequence[NDArray[Any]], goes_on: bool = False) -> tuple[int, int, int, int]: ...
    def repeat(
        self, signature: Signature, feed: Mapping[str, Any], into: list[NDArray[Any]] | None = None
    ) -> _Repeated | None: ...
    def close(self) -> None: ...

BASE_ROW: int
ENTRY_RUN: int
ENTRY_COPY: int
ENTRY_SWAP: int
ENTRY_BRANCH: int
ENTRY_JUMP: int
ENTRY_BEGIN: int
ENTRY_TURN: int
ENTRY_NEXT: int
ENTRY_COUNT: int
ENTRY_ROW: int

_Outcome = tuple[float, float, int]

class Drafts:
    def __init__(
        self,
        *,
        nodes: NDArray[Any],
        variants: NDArray[Any],
        constants: NDArray[Any],
        gaps: NDArray[Any],
        items: NDArray[Any],
        lifetimes: NDArray[Any],
        io_align: int,
        step_bytes: int,
        storage_bytes_per_second: float,
        request_s: float,
        latency_s: float = 0.0,
        compute_speed: float = 1.0,
        load_speed: float = 1.0,
    ) -> None: ...
    def release(self) -> None: ...
    def bound_terms(self, arena_bytes: int) -> list[memoryview]: ...
    def choose(
        self,
        choices: NDArray[Any],
        order: NDArray[np.int32],
        working_bytes: int,
        bytes_max: int,
        slices_in_room: int,
        smallest: bool = False,
    ) -> _Outcome: ...
    def improve(self, choices: NDArray[Any], working_bytes: int, bytes_max: int, tries: int) -> _Outcome: ...
    def anneal(
        self, choices: NDArray[Any], working_bytes: int, bytes_max: int, tries: int
    ) -> tuple[int, bool] | None: ...
    def place(
        self, choices: NDArray[Any], working_bytes: int, from_top: bool = False, below: float | None = None
    ) -> tuple[_Outcome, bytes, bytes, bytes, bytes] | None: ...
    def fill(
        self,
        steps: NDArray[Any],
        slices: NDArray[Any],
        order: NDArray[np.int32],
        working_bytes: int,
        bytes_max: int,
        next_bytes_max: int,
        looks: int,
    ) -> tuple[_Outcome, bytes, bytes]: ...

def fluid_bound(
    seconds: NDArray[np.float64] | memoryview,
    nbytes: _I64 | memoryview,
    read_s: NDArray[np.float64] | memoryview,
    byte_s: NDArray[np.float64] | memoryview,
    uses: NDArray[np.float64],
    free_bytes: _I64 | memoryview,
    *,
    bytes_per_second: float,
    compute_speed: float = 1.0,
    load_speed: float = 1.0,
    rounds: int | None = None,
) -> tuple[float, Sequence[float]]: ...
def usable_cpus() -> float: ...
def cut_code() -> None: ...
