"""Files in a folder of another name than the metadata say, such as `video` for `videos`."""

import shlex
from pathlib import Path


def rename_command(root: Path, missing: Path) -> str | None:
    """What to type if another folder directly below `root` holds the missing file, None if none
    does.
    """
    folder, *below = missing.relative_to(root).parts
    if not below:
        return None
    for other in sorted(root.iterdir()):
        if other.name != folder and other.joinpath(*below).is_file():
            present, wanted = shlex.quote(str(other)), shlex.quote(str(root / folder))
            if (root / folder).exists():  # moving would put one folder into the other
                return f"cp -r {present}/. {wanted}/"
            return f"mv {present} {wanted}"
    return None
