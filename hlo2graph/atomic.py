"""Files that are there whole or not at all, whatever interrupts the writing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of `path`, with its permissions, once all is written.

    A pipe or a device is written to as it is: there is nothing to replace. Raises OSError that
    names `path`, never the file beside it that is written first.
    """
    if path.exists() and not path.is_file():  # /dev/stdout resolves to no file's name
        try:
            with path.open("wb") as whole:
                yield whole
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        return
    target = Path(os.path.realpath(path))  # Path.resolve raises RuntimeError at a loop
    temporary = target.with_name(f".{target.name[:64]}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as whole:
            yield whole
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
