"""ArrayRecord files (https://github.com/google/array_record), read by the package of that name."""

from collections.abc import Iterator
from pathlib import Path

from rrf.lookup import require

_SEQUENTIAL = "readahead_buffer_size:0,max_parallelism:0"  # no threads: a process reads one shard


def read_array_record(path: Path) -> Iterator[bytes]:
    """The records of a file, one in memory at a time. The format's own hashes are verified.

    Raises:
        ValueError: For a damaged file, naming file and record; or if the package is missing, with
            the command that installs it.
    """
    try:
        module = require("array_record.python.array_record_module", extra="rlds")
    except ImportError as error:
        raise ValueError(f"{path} is an array_record file; {error}") from error
    reader = module.ArrayRecordReader(str(path), _SEQUENTIAL)
    if not reader.ok():
        raise ValueError(
            f"{path} is truncated or not an array_record file; copy it again from where it came"
        )
    for number in range(reader.num_records()):
        try:
            data = reader.read()
        except (RuntimeError, IndexError) as error:
            raise ValueError(
                f"{path}: record {number} is damaged ({error}); copy the file again from where it "
                "came"
            ) from error
        yield data
    reader.close()
