"""From converted to published: the only way a dataset gets into `datasets/NAME`, where training
looks for it.
"""

import shutil
from pathlib import Path

from rrf import atomic
from rrf.data.conversion.parts import alone_with
from rrf.data.dataset.layout import NORM_STATS
from rrf.data.dataset.stats import norm_stats
from rrf.data.files import content_digest
from rrf.data.pages.card import CARD, render_card
from rrf.data.remedies import again
from rrf.data.validation.summary import read_summary
from rrf.data.validation.validate import read_report


def publish(converted: str | Path, reports: str | Path, out: str | Path) -> dict:
    """Copy a validated dataset to `out` and add its normalisation statistics and its card.

    Returns:
        The content of norm_stats.json.

    Raises:
        ValueError: If there is no report, it did not pass, it judged other content than
            `converted` holds now, or another process is converting or publishing the same. What
            stood at `out` is unchanged.
    """
    with alone_with(Path(converted)):
        return _publish(Path(converted), reports, out)


def _publish(converted: Path, reports: str | Path, out: str | Path) -> dict:
    report = read_report(reports)
    if not report["passed"]:
        failed = [c["check"] for c in report["checks"] if c["status"] in ("fail", "crashed")]
        raise ValueError(
            f"{report['name']} did not pass validation ({', '.join(sorted(set(failed)))}); "
            f"see {reports}, mend the data or its config, then {again(Path(reports))}"
        )
    if not converted.is_dir() or content_digest(converted) != report["digest"]:
        raise ValueError(
            f"the report in {reports} judged another content than {converted} holds; "
            f"{again(Path(reports), 'validate it again')}"
        )
    stats = norm_stats(converted)
    with atomic.directory(out) as directory:
        shutil.copytree(converted, directory, dirs_exist_ok=True)
        atomic.write_json(directory / NORM_STATS, stats)
        atomic.write_text(directory / CARD, render_card(read_summary(directory), report))
    return stats
