"""Fuzzing: mutations of recorded inputs, with limits of time and memory for the code that reads them.

The code may reject an input only with a PostgresError, or an exception that the caller of `run` names, within `SECONDS` of CPU time. All
inputs together may leave less than `LEFT` bytes allocated. A failure is reported with its input.
"""

from __future__ import annotations

import gc
import random
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.errors import PostgresError

SECONDS = 2.0
LEFT = 2 << 20
INTERESTING = [
    b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\x7f\xff", b"\xff\xff", b"'", b'"', b"\\", b"\\'", b"E'", b"$$",
    b"--", b"/*", b"*/", b";", b"(", b")", b"[", b"]", b"{", b"}", b",", b".", b"..", b":", b"::", b"%", b"\t", b"\n", b"\r", b" ", b"-", b"+", b"1e999", b"NaN",
    b"infinity", b"9" * 400, b"0.", b"-0", b"NULL", b"null", b"\xc3", b"\xe2\x82", "😀".encode(), b"\xed\xa0\x80", b"U&'\\d800'", b"\\u0000", b"\\N", b"\\.",
    b"@", b"#", b"/", b"=", b"select", b"from", b"::text", b"$1", b"$99999",
]  # fmt: skip


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of the seeds, changed in up to four places."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 2, 4, 8, 40)))
        match chance.randrange(9):
            case 0:
                data[at:at] = chance.choice(INTERESTING)
            case 1:
                data[at:end] = chance.choice(INTERESTING)
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[at:end]
            case 4:
                del data[at:]
            case 5:
                other_seed = chance.choice(seeds)
                begin = chance.randrange(len(other_seed) + 1)
                data[at:end] = other_seed[begin : begin + chance.choice((1, 4, 20, 200))]
            case 6:
                data[at:end] = chance.randbytes(end - at)
            case 7 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case _:
                data[at:at] = bytes(data[at:end]) * chance.choice((2, 10, 300)) if chance.random() < 0.1 else chance.choice(INTERESTING)
    return bytes(data)


@dataclass
class Results:
    """The results of a number of inputs."""

    inputs: int = 0
    refused: int = 0
    slowest: float = 0
    wrong: dict[str, bytes] = field(default_factory=dict)
    """The failures, each with the first input that caused it."""


class TookTooLongError(BaseException):
    """Raised when an input takes too long. The tested code does not catch it."""


@contextmanager
def hurried() -> Iterator[None]:
    """Raise TookTooLongError in code inside the context that exceeds its time."""

    def late(*_: object) -> None:
        raise TookTooLongError

    handler_before = signal.signal(signal.SIGPROF, late)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler_before)


def run(
    read: Callable[[bytes], object], seeds: Sequence[bytes], count: int, *, seed: int = 0, refused: tuple[type[BaseException], ...] = ()
) -> Results:
    """Call `read` with this number of inputs."""
    chance, results = random.Random(seed), Results()
    for seed_input in seeds:
        _once(read, seed_input, results, refused)
    with hurried():
        for _ in range(count):
            _once(read, mutated(chance, seeds), results, refused)
    return results


def _once(read: Callable[[bytes], object], data: bytes, results: Results, refused: tuple[type[BaseException], ...]) -> None:
    results.inputs += 1
    began = time.thread_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, 5 * SECONDS)
        read(data)
    except (PostgresError, *refused):
        results.refused += 1
    except TookTooLongError:
        results.wrong.setdefault("no end", data)
    except Exception as error:  # noqa: BLE001 (any other error is a failure)
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = "" if at is None else f"{at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno}"
        results.wrong.setdefault(f"{type(error).__name__} in {where}: {str(error)[:100]}", data[:2000])
    signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.thread_time() - began
    if took > SECONDS:
        results.wrong.setdefault(f"took {took:.1f} s", data[:2000])
    results.slowest = max(results.slowest, took)


def left_behind(
    read: Callable[[bytes], object], seeds: Sequence[bytes], count: int, *, refused: tuple[type[BaseException], ...] = ()
) -> int:
    """Return the bytes that this number of inputs leaves allocated, after as many others have filled the caches."""
    run(read, seeds, count, seed=1, refused=refused)
    gc.collect()
    tracemalloc.start()
    try:
        bytes_before, _ = tracemalloc.get_traced_memory()
        run(read, seeds, count, seed=2, refused=refused)
        gc.collect()
        bytes_after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return bytes_after - bytes_before
