"""Files that appear under their names whole, each written by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, *, new: bool = False) -> Iterator[Path]:
    """Give a path to write to, which takes the place of ``path`` at the end if all goes well.

    What was written is on the disk before it gets its name, so that no crash leaves half a file
    under it. Whatever goes wrong, nothing is left.

    Args:
        path: the file; a link stays one.
        new: whether it must not be there yet.

    Raises:
        FileExistsError: it is there.
        OSError: it cannot be written, or another process is writing it.
    """
    place = Path(os.path.realpath(path))
    partial = place.with_name(f"{place.name}.partial")
    with _locked(place):
        if new and os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, "it is there already")
        partial.unlink(missing_ok=True)
        try:
            yield partial
            _sync(partial)
            partial.replace(place)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync(place.parent)


def remedy(error: OSError) -> str:
    """Say what to do when a file cannot be written."""
    if isinstance(error, BlockingIOError):
        return "Wait for it, or name another file."
    return "Make room, or name another file."


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing a file, which need not be there yet."""
    lock = path.with_name(f"{path.name}.lock")
    file = _lock(lock)
    while not _is_at(lock, file):  # its last owner has just removed it; the next one makes another
        os.close(file)
        file = _lock(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(file)


def _lock(lock: Path) -> int:
    file = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise BlockingIOError(error.errno, "it is locked by another process") from error
    except OSError:
        os.close(file)
        raise
    return file


def _is_at(path: Path, file: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file))
    return False


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot do it for folders
            raise
    finally:
        os.close(handle)
