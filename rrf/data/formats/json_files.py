"""JSON files that came from somewhere else, with errors that name the file."""

from pathlib import Path

from rrf import atomic


def read_json(path: Path):
    """The content of a JSON file.

    Raises:
        ValueError: If the file is missing, truncated, not JSON or not UTF-8.
    """
    try:
        return atomic.parse_json(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no file {path}; copy it too, it belongs to the recordings") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{path} is truncated or not JSON ({error}); copy it again") from error


def read_object(path: Path) -> dict:
    """The object in a JSON file. Raises ValueError as `read_json` does, and for other content."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold an object {{...}}, found {type(content).__name__}")
    return content
