"""A run on disk: a manifest, and files that only ever grow.

    results/<run>/manifest.json     the plan, the machine, the versions; written once, whole
    results/<run>/records.jsonl     one line per cell; the line is what makes a cell finished
    results/<run>/samples.jsonl     one line per cell with every raw sample, written before it
    results/<run>/profiles.jsonl    one line per profiled cell, likewise
    results/<run>/legs.jsonl        one line per driver that worked on it: how long and where
    results/<run>/nodes.jsonl       one line per node that measured some of it; see `nodes`
    results/<run>/logs/             the output of the workers
    results/<run>/lock              held by the one driver that may write

A line is written at once, then synced. Whatever kills the program, only the last line can be torn;
readers skip it and the next writer cuts it off.

Any .jsonl file may be packed by `gzip`: the lines of `records.jsonl.gz` come before those of
`records.jsonl`, where a resumed run continues.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeAlias, TypeVar

import msgspec

from lstm_bench.model.limits import Limits
from lstm_bench.model.profile import Profile
from lstm_bench.model.types import Block, LstmBenchError, Record, dumps, plain, to_json

T = TypeVar("T")

#: The errors of parsing a file from anywhere.
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)

#: A finished cell: its record, its blocks, and its profile if it has one.
Finished = tuple[Record, list[Block], Profile | None]

FORMAT = 1
MAX_MANIFEST = 256 << 20
PIECE = 2 << 20  # bytes of a file that are parsed at a time: their records fit a cache
MAX_UNPACKED = 1 << 30  # bytes: a few packed kilobytes can unpack to anything


class Store:
    """The only writer of a run, which holds its lock. Use as a context manager."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in (folder, folder / "logs"):
            if path.is_symlink():  # its target is not the run's
                raise LstmBenchError(
                    f"{path}: is a link, expected a folder; name the folder itself"
                )
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise LstmBenchError(
                f"{folder}: another lstm-bench is writing this run; wait for it,"
                " or start a run of your own without --resume"
            ) from None
        (folder / "logs").mkdir(exist_ok=True)
        self._records = _open_whole_lines(folder / "records.jsonl")
        self._samples = _open_whole_lines(folder / "samples.jsonl")
        self._profiles: int | None = None
        self.sign: Callable[[Record], None] = lambda record: None  # notes where it was measured

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any]) -> Store:
        """Begin a run in a folder that has none."""
        store = cls(folder)
        temporary = folder / "manifest.json.new"
        temporary.unlink(missing_ok=True)  # it may be a link
        with temporary.open("x", encoding="utf-8") as file:
            file.write(json.dumps({"format": FORMAT, **manifest}, indent=1, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(folder / "manifest.json")
        _fsync_folder(folder)
        return store

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def append(self, record: Record, blocks: list[Block], profile: Profile | None = None) -> None:
        """Finish a cell: write its samples and its profile, then its record."""
        self.append_all([(record, blocks, profile)])

    def append_all(self, cells: Iterable[Finished]) -> None:
        """Finish some cells at once: each file is written and synced once."""
        records, samples, profiles = [], [], []
        for record, blocks, profile in cells:
            self.sign(record)
            cell = {"key": record.key, "group": record.group}
            records.append(record)
            samples += [{**cell, "blocks": blocks}] if blocks else []
            profiles += [{**cell, "profile": profile}] if profile else []
        if samples:
            _append(self._samples, *samples)
        if profiles:
            _append(self._profiles_file(), *profiles)
        _append(self._records, *records)

    def append_lines(self, name: str, *lines: bytes | Mapping[str, Any]) -> None:
        """Append lines to a file of the run, bytes as they are."""
        fd = _open_whole_lines(self.folder / name)
        try:
            _append(fd, *lines)
        finally:
            os.close(fd)

    def _profiles_file(self) -> int:
        """Open the file for the first profile: most runs have none."""
        if self._profiles is None:
            self._profiles = _open_whole_lines(self.folder / "profiles.jsonl")
        return self._profiles

    def close(self) -> None:
        for fd in (self._records, self._samples, self._profiles, self._lock):
            if fd is not None:
                os.close(fd)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_whole_lines(path: Path) -> int:
    """Open a file for appending, and cut off a torn last line."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    size = end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)
    return fd


_ENCODER = msgspec.json.Encoder(enc_hook=plain)


def _line(value: Any) -> bytes:
    """Write a mapping or a dataclass as one line of strict JSON; `dumps` is far slower."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # half a character, as the name of a file may have
        return dumps(to_json(value) if is_dataclass(value) else value).encode()


def _append(fd: int, *values: Any) -> None:
    """Write lines at once, or none of them."""
    each = (value if isinstance(value, bytes) else _line(value) for value in values)
    lines = b"".join(line + b"\n" for line in each)
    start = os.fstat(fd).st_size
    try:
        if os.write(fd, lines) != len(lines):
            raise OSError("short write: is the disk full?")
        os.fsync(fd)
        if os.fstat(fd).st_nlink == 0:
            raise OSError("the run's folder was deleted")
    except OSError:
        os.ftruncate(fd, start)  # leave whole lines behind
        raise


def _fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Gpu(msgspec.Struct):
    name: str
    driver: str


class Machine(msgspec.Struct):
    """The machine of a manifest, as far as readers need it."""

    cpu: str | None = None
    gpus: list[Gpu] = []
    environment: dict[str, str] = {}


class Manifest(msgspec.Struct):
    """A manifest, as far as readers need it."""

    plan: dict[str, Any]
    machine: Machine
    started_at: str = ""
    interpreters: dict[str, dict[str, Any]] = {}
    limits: Limits | None = None
    format: int = FORMAT


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        text = _read(folder / "manifest.json", MAX_MANIFEST)
        data = msgspec.json.decode(text)
        version = data.get("format", FORMAT) if isinstance(data, dict) else FORMAT
        if isinstance(version, int) and version > FORMAT:
            raise LstmBenchError(
                f"{folder}: written in format {version}, this lstm-bench reads {FORMAT};"
                " use a newer one"
            )
        msgspec.convert(data, Manifest, str_keys=True)
    except OSError as error:
        raise LstmBenchError(
            f"{folder}: no readable run here ({error.strerror}); expected a folder that"
            " `lstm-bench grid` wrote"
        ) from None
    except UNREADABLE as error:
        raise LstmBenchError(
            f"{folder}/manifest.json: found something else ({error}), expected what `lstm-bench"
            " grid` writes; put the folder aside"
        ) from None
    return dict(data)


def limits_of(data: Mapping[str, Any]) -> Limits | None:
    """The limits of the machine of a manifest, if the run measured them."""
    limits = data.get("limits")
    return None if limits is None else msgspec.convert(limits, Limits, str_keys=True)


Size = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_LENGTHS = r"\A(full|\d*\.?\d+-\d*\.?\d+(#\d{1,9})?|\d{1,9}(/\d{1,9})*)\Z"
Lengths = Annotated[str, msgspec.Meta(pattern=_LENGTHS)]  # as `Shape` has them


def struct_of(kind: type, types: Mapping[str, Any]) -> Any:
    """Derive a struct with these fields of a dataclass, which is read twice as fast."""
    members: list[Any] = []
    for member in fields(kind):
        if member.name in types:
            default = msgspec.NODEFAULT if member.default is MISSING else member.default
            if member.default_factory is not MISSING:
                default = msgspec.field(default_factory=member.default_factory)
            members.append((member.name, types[member.name], default))
    return msgspec.defstruct(kind.__name__, members, gc=False)


def read_records(folder: Path) -> dict[str, Record]:
    """Read the last record of every cell, by key; lines that cannot be read are skipped."""
    return {record.key: record for record in read_all(folder / "records.jsonl", Record) if record}


class Leg(msgspec.Struct):
    """A line of `legs.jsonl`."""

    wall_s: float
    timed_s: float
    cells: Count = 0
    spent_s: dict[str, float] = {}
    note: str = ""
    machine: dict[str, Any] = {}  # like that of the manifest
    places: Count = 1  # that measured at once, in a cluster
    limits: Limits | None = None  # of a CPU, at the end of the session


def read_legs(folder: Path) -> list[Leg]:
    return [leg for leg in read_all(folder / "legs.jsonl", Leg) if leg]


class CellLine(msgspec.Struct):
    """A line of `samples.jsonl` or of `profiles.jsonl`."""

    key: str
    group: str | None = None
    blocks: list[Block] = []
    profile: Profile | None = None


def _of_cells(folder: Path, name: str) -> Iterator[tuple[Record, CellLine]]:
    """Read the lines of cells with their records; those of a superseded record are left out."""
    records: dict[str, Record] = {}
    for line in read_all(folder / name, CellLine):
        records = records or read_records(folder)
        record = records.get(line.key) if line else None
        if line and record and line.group in (None, record.group):
            yield record, line


def read_blocks(folder: Path) -> Iterator[tuple[Record, list[Block]]]:
    """Read the blocks of each cell that has a record."""
    return ((record, line.blocks) for record, line in _of_cells(folder, "samples.jsonl"))


def read_profiles(folder: Path) -> list[tuple[Record, Profile]]:
    """Read the profile of each profiled cell, with its record."""
    lines = _of_cells(folder, "profiles.jsonl")
    profiles = {line.key: (record, line.profile) for record, line in lines if line.profile}
    return list(profiles.values())


def read_lines(folder: Path, name: str) -> list[bytes]:
    """The whole lines of a file of a run, packed ones first; none if there is no file."""
    return [line for part in _pieces(folder / name) for line in part.splitlines()]


def read_all(path: Path, kind: type[T]) -> Iterator[T | None]:
    """Parse the lines of a file, None for one that cannot be read; skip a torn last line."""
    for piece in read_pieces(path, kind):
        yield from piece


def read_pieces(path: Path, kind: type[T]) -> Iterator[list[T | None]]:
    """Parse the lines of a file, some megabytes at a time; None for one that cannot be read."""
    decoder = msgspec.json.Decoder(kind)
    for piece in _pieces(path):
        try:
            yield list(decoder.decode_lines(piece))
        except UNREADABLE:
            yield [_parsed(decoder, line) for line in piece.splitlines()]


def _parsed(decoder: msgspec.json.Decoder[T], line: bytes) -> T | None:
    try:
        return decoder.decode(line)
    except UNREADABLE:
        return None


def _pieces(path: Path) -> Iterator[bytes]:
    """Read the whole lines of a file, some megabytes at a time: a long file need not fit."""
    try:
        if packed := _packed(path):
            yield packed
        with contextlib.suppress(FileNotFoundError), _opened(path) as file:
            begun = b""
            while more := file.read(PIECE):
                end = more.rfind(b"\n") + 1
                if end:
                    yield begun + more[:end]
                begun = more[end:] if end else begun + more
    except OSError as error:
        raise LstmBenchError(
            f"{path}: cannot be read ({error.strerror}); expected a plain file, put it aside"
        ) from None


def _packed(path: Path) -> bytes:
    """Unpack the lines of the `.gz` beside a file; none if there is no such file."""
    path = path.with_name(path.name + ".gz")
    try:
        packed = _read(path)
    except FileNotFoundError:
        return b""
    data = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            while len(data) <= MAX_UNPACKED and (more := file.read(1 << 20)):
                data += more
    except EOFError:
        raise LstmBenchError(f"{path}: cut short; fetch it again, or gunzip it") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise LstmBenchError(f"{path}: not packed by gzip ({error}); put it aside") from None
    if len(data) > MAX_UNPACKED:
        raise LstmBenchError(f"{path}: over {MAX_UNPACKED >> 30} GiB; gunzip it")
    return bytes(data[: data.rfind(b"\n") + 1])


def _read(path: Path, most: int = -1) -> bytes:
    with _opened(path, most) as file:
        return file.read()


def _opened(path: Path, most: int = -1) -> BinaryIO:
    """Open a plain file: a link, a pipe or a device could go on for ever."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    file = os.fdopen(fd, "rb")
    status = os.fstat(fd)
    try:
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        if 0 <= most < status.st_size:
            raise OSError(errno.EFBIG, f"longer than {most >> 20} MiB", str(path))
    except OSError:
        file.close()
        raise
    return file


@dataclass
class MemoryStore:
    """Keeps finished cells in memory."""

    logs: Path
    cells: list[Finished] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [record for record, _, _ in self.cells]

    def append(self, record: Record, blocks: list[Block], profile: Profile | None = None) -> None:
        self.cells.append((record, blocks, profile))


Sink: TypeAlias = Store | MemoryStore  # takes finished cells
