"""Which episodes of a dataset are held out: never learned from, only measured on."""


def is_held_out(episode: int, fraction: float) -> bool:
    """Whether an episode is for validation: every (1 / fraction)-th, the same ones in every run."""
    if fraction == 0:
        return False
    interval = round(1 / fraction)
    return episode % interval == interval - 1


def held_out(total: int, fraction: float) -> list[int]:
    """The episodes of a dataset of `total` that are for validation: those of `is_held_out`, and the
    last one where there are too few of them for that; of a single episode none.
    """
    numbers = [episode for episode in range(total) if is_held_out(episode, fraction)]
    return numbers if numbers or not fraction or total < 2 else [total - 1]


def split_range(text: str, total: int) -> range | None:
    """The episodes of a split such as "0:25", None if they are not within a dataset of `total`."""
    start, _, stop = str(text).partition(":")
    if not (start.isdecimal() and stop.isdecimal() and int(start) <= int(stop) <= total):
        return None
    return range(int(start), int(stop))
