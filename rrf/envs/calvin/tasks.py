"""CALVIN's tasks, the rules by which they follow each other, and its sequences of five (LH-MTLC).

It needs NumPy alone, for it is read by rrf and by the simulator's own interpreter. Words, rules and
places are those of CALVIN (MIT licence), commit fa03f01: `conf/annotations/
new_playtable_validation.yaml` and `calvin_agent/evaluation` in `calvin_models`.

A *condition* says in words how the table stands: `led` and `lightbulb` 0 or 1, `slider` right or
left, `drawer` open or closed, each block's place, `grasped` 0 or 1.
"""

import functools
import itertools
import typing
from pathlib import Path

import numpy as np

INSTRUCTIONS = {
    "rotate_red_block_right": "take the red block and rotate it to the right",
    "rotate_red_block_left": "take the red block and rotate it to the left",
    "rotate_blue_block_right": "take the blue block and rotate it to the right",
    "rotate_blue_block_left": "take the blue block and rotate it to the left",
    "rotate_pink_block_right": "take the pink block and rotate it to the right",
    "rotate_pink_block_left": "take the pink block and rotate it to the left",
    "push_red_block_right": "go push the red block right",
    "push_red_block_left": "go push the red block left",
    "push_blue_block_right": "go push the blue block right",
    "push_blue_block_left": "go push the blue block left",
    "push_pink_block_right": "go push the pink block right",
    "push_pink_block_left": "go push the pink block left",
    "move_slider_left": "push the sliding door to the left side",
    "move_slider_right": "push the sliding door to the right side",
    "open_drawer": "pull the handle to open the drawer",
    "close_drawer": "push the handle to close the drawer",
    "lift_red_block_table": "grasp and lift the red block",
    "lift_red_block_slider": "lift the red block from the sliding cabinet",
    "lift_red_block_drawer": "Take the red block from the drawer",
    "lift_blue_block_table": "grasp and lift the blue block",
    "lift_blue_block_slider": "lift the blue block from the sliding cabinet",
    "lift_blue_block_drawer": "Take the blue block from the drawer",
    "lift_pink_block_table": "grasp and lift the pink block",
    "lift_pink_block_slider": "lift the pink block from the sliding cabinet",
    "lift_pink_block_drawer": "Take the pink block from the drawer",
    "place_in_slider": "store the grasped block in the sliding cabinet",
    "place_in_drawer": "store the grasped block in the drawer",
    "stack_block": "stack the grasped block",
    "unstack_block": "remove the stacked block",
    "turn_on_lightbulb": "use the switch to turn on the light bulb",
    "turn_off_lightbulb": "use the switch to turn off the light bulb",
    "turn_on_led": "press the button to turn on the led light",
    "turn_off_led": "press the button to turn off the led light",
    "push_into_drawer": "slide the block that it falls into the drawer",
}
"""Task -> instruction. The order is that by which the sequences are drawn."""
CHAIN = "chain"
"""The task of an episode of five instructions in a row."""
NUM_CHAINS = 1000
_COLOURS = ("red", "blue", "pink")
_NUM_IN_CHAIN = 5
_SHIPPED = Path(__file__).parent / "sequences.npz"
_OPPOSITE = {"left": "right", "right": "left", "open": "closed", "closed": "open"}
_KINDS = {"rotate": 1, "push": 1, "move": 2, "open": 3, "close": 3, "place": 7, "turn": 8}
_KINDS |= {"stack": 10, "unstack": 11}
_LIFTS = {"table": 4, "slider": 5, "drawer": 6}
_ROBOT_OBS = (
    *(0.02586889, -0.2313129, 0.5712808, 3.09045411, -0.02908596, 1.50013585, 0.07999963),
    *(-1.21779124, 1.03987629, 2.11978254, -2.34205014, -0.87015899, 1.64119093, 0.55344928, 1.0),
)
_IN_SLIDER = {
    "slider_left": (-2.40851662e-01, 9.24044687e-02, 4.60990009e-01),
    "slider_right": (7.03416330e-02, 9.24044687e-02, 4.60990009e-01),
}
_ON_TABLE = (
    (5.00000896e-02, -1.20000177e-01, 4.59990009e-01),
    (2.29995412e-01, -1.19995140e-01, 4.59990010e-01),
)
_TABLE_M = ((0.0, -0.15), (0.28, -0.05))  # of the table, x and y, what the arm reaches well
_APART_M = 0.1  # centres of two blocks
_TURN_RAD = np.pi / 8
Condition = dict  # name -> str or int


def outcomes(condition: Condition, task: str) -> list:
    """The conditions that a task may lead to; empty if it cannot be done. A task that leaves open
    what is to be done (which of two blocks to stack on) has several.
    """
    rules = [(needs, makes) for needs, makes in _RULES[task] if _holds(condition, needs)]
    return [{**condition, **makes} for _, makes in rules]


def can_follow(condition: Condition, sequence: tuple) -> bool:
    """Whether these tasks can be done one after the other, each of another kind, with no choice."""
    if not _leads_to(condition, sequence):
        return False
    kinds = [kind_of(task) for task in sequence]
    return len(set(kinds)) == len(kinds)


def kind_of(task: str) -> int:
    """The kind of a task; a sequence has no two of one kind."""
    if task == "push_into_drawer":
        return 9
    first, *_, last = task.split("_")
    return _LIFTS[last] if first == "lift" else _KINDS[first]


@functools.cache
def conditions() -> tuple:
    """The 192 conditions that chains begin in, in CALVIN's order."""
    places = ("table", "slider_right", "slider_left")
    values = {
        "led": (0, 1),
        "lightbulb": (0, 1),
        "slider": ("right", "left"),
        "drawer": ("closed", "open"),
        **{f"{colour}_block": places for colour in _COLOURS},
        "grasped": (0,),
    }
    found = [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]
    return tuple(c for c in found if _fits([c[f"{colour}_block"] for colour in _COLOURS]))


def sequences_of(number: int, wanted: int) -> list:
    """The first sequences that CALVIN draws for a condition, as numbers of tasks."""
    condition, names = conditions()[number], list(INSTRUCTIONS)
    random, drawn = np.random.RandomState(number), []
    while len(drawn) < wanted:
        numbers = random.choice(len(names), size=_NUM_IN_CHAIN, replace=False)
        if can_follow(condition, tuple(names[n] for n in numbers)):
            drawn.append(numbers.tolist())
    return drawn


def all_sequences() -> np.ndarray:
    """What `sequences.npz` holds, uint8 [1000, 6]: the condition and five tasks of each chain. It
    takes minutes.
    """
    counts = [len(part) for part in np.array_split(range(NUM_CHAINS), len(conditions()))]
    rows = [
        [number, *sequence]
        for number, wanted in enumerate(counts)
        for sequence in sequences_of(number, wanted)
    ]
    np.random.RandomState(0).shuffle(rows)
    return np.array(rows, np.uint8)


def chain(index: int) -> tuple:
    """The condition in which a chain begins, and its five tasks."""
    with np.load(_SHIPPED) as file:
        number, *tasks = file["sequences"][index].tolist()
    names = list(INSTRUCTIONS)
    return conditions()[number], [names[task] for task in tasks]


def fnv1_32(text: str) -> int:
    """The hash by which CALVIN seeds the scene of a condition: pyhash's `fnv1_32`, which is FNV-1
    from 0 over UTF-16-LE.
    """
    value = 0
    for byte in text.encode("utf-16-le"):
        value = (value * 16777619) % 2**32 ^ byte
    return value


def chain_scene(condition: Condition) -> tuple:
    """The robot and the table at the beginning of a chain, `robot_obs` [15] and `scene_obs` [24] of
    CALVIN: door, drawer, button, switch, lamp, LED; place and Euler angles of each block.
    """
    random = np.random.RandomState(fnv1_32(str(condition.values())))
    spots = [np.array(spot) for spot in _ON_TABLE]
    random.shuffle(spots)
    places = []
    is_red_there = condition["red_block"] == "table"
    first_of = {"red": 0, "blue": 1 if is_red_there else 0, "pink": 1}
    for colour in _COLOURS:
        place = condition[f"{colour}_block"]
        spot = spots[first_of[colour]] if place == "table" else _IN_SLIDER[place]
        places.append((spot, random.uniform(np.pi / 2 - _TURN_RAD, np.pi / 2 + _TURN_RAD)))
    return np.array(_ROBOT_OBS), _scene(condition, places)


def drawn_scene(condition: Condition, random: np.random.Generator) -> tuple:
    """Like `chain_scene`, with the blocks at other places: on the table anywhere, in the cabinet
    up to 2 cm from the middle.
    """
    places, taken = [], []
    for colour in _COLOURS:
        place = condition[f"{colour}_block"]
        if place == "table":
            spot = _free_spot(random, taken)
            taken.append(spot)
        else:
            spot = np.array(_IN_SLIDER[place])
            spot[0] += random.uniform(-0.02, 0.02)
        places.append((spot, np.pi / 2 + random.uniform(-_TURN_RAD, _TURN_RAD)))
    return np.array(_ROBOT_OBS), _scene(condition, places)


def draw_before(task: str, others: list, random: np.random.Generator, later_starts: float) -> tuple:
    """A condition, and the tasks that lead from it to one in which `task` can be done.

    Args:
        task: The task.
        others: Tasks that may come before it, though it does not need them.
        random: What to draw by.
        later_starts: Probability that one of these comes first.
    """
    known = conditions()
    while True:
        before = _needed(task, str(random.choice(_COLOURS)))
        if random.uniform() < later_starts:
            before = [str(random.choice(others)), *before]
        condition = known[random.integers(len(known))]
        if _leads_to(condition, [*before, task]):
            return condition, before


def _needed(task: str, colour: str) -> list:
    lift = f"lift_{colour}_block_table"
    if task in ("place_in_slider", "place_in_drawer", "stack_block"):
        return [lift]
    if task == "unstack_block":
        return [lift, "stack_block"]
    if task.endswith("_block_drawer"):
        return [lift.replace(colour, task.split("_")[1]), "place_in_drawer"]
    return []


def _leads_to(condition: Condition, sequence: typing.Sequence) -> bool:
    for task in sequence:
        after = outcomes(condition, task)
        if len(after) != 1:
            return False
        condition = after[0]
    return True


def _free_spot(random: np.random.Generator, taken: list) -> np.ndarray:
    while True:
        spot = np.array([*random.uniform(*_TABLE_M), _ON_TABLE[0][2]])
        if all(np.linalg.norm(spot - other) > _APART_M for other in taken):
            return spot


def _scene(condition: Condition, places: list) -> np.ndarray:
    scene = np.zeros(24)
    scene[0] = 0.28 if condition["slider"] == "left" else 0.0
    scene[1] = 0.22 if condition["drawer"] == "open" else 0.0
    scene[3] = 0.088 if condition["lightbulb"] else 0.0
    scene[4], scene[5] = condition["lightbulb"], condition["led"]
    for number, (spot, turn) in enumerate(places):
        scene[6 + 6 * number : 9 + 6 * number] = spot
        scene[11 + 6 * number] = turn
    return scene


def _fits(places: list) -> bool:
    on_table = places.count("table")
    return on_table in (1, 2) and all(places.count(f"slider_{s}") < 2 for s in ("left", "right"))


def _holds(condition: Condition, needs: dict) -> bool:
    return all(
        condition[name] in wanted if isinstance(wanted, tuple) else condition[name] == wanted
        for name, wanted in needs.items()
    )


def _rules(task: str) -> list:
    """What each way of doing a task needs, and what it makes of the table."""
    words, free, held = task.split("_"), {"grasped": 0}, {"grasped": 1}
    block = f"{words[1]}_block"
    behind = [(f"slider_{side}", _OPPOSITE[side]) for side in ("left", "right")]
    if words[0] in ("rotate", "push") and words[1] in _COLOURS:
        return [({block: "table", **free}, {block: "table"})]
    if words[0] == "move":
        return [({"slider": _OPPOSITE[words[2]], **free}, {"slider": words[2]})]
    if words[0] in ("open", "close"):
        end = {"open": "open", "close": "closed"}[words[0]]
        return [({"drawer": _OPPOSITE[end], **free}, {"drawer": end})]
    if words[0] == "turn":
        end = int(words[1] == "on")
        return [({words[2]: 1 - end, **free}, {words[2]: end})]
    if words[0] == "lift":
        where = {
            "table": [{block: "table"}],
            "drawer": [{block: "drawer", "drawer": "open"}],
            "slider": [{block: place, "slider": door} for place, door in behind],
        }[words[3]]
        return [({**needs, **free}, {block: "grasped", **held}) for needs in where]
    rules = []
    for colour in _COLOURS:
        block, others = f"{colour}_block", [f"{other}_block" for other in _COLOURS]
        others.remove(block)
        has = {block: "grasped", **held}
        if task == "place_in_slider":
            rules += [
                ({**has, "slider": side}, {block: f"slider_{side}", **free})
                for side in ("right", "left")
            ]
        elif task == "place_in_drawer":
            rules.append(({**has, "drawer": "open"}, {block: "drawer", **free}))
        elif task == "push_into_drawer":
            away = {other: ("slider_right", "slider_left") for other in others}
            needs = {block: "table", **away, "drawer": "open", **free}
            rules.append((needs, {block: "drawer", **free}))
        elif task == "stack_block":
            for other in others:
                stacked = {block: "stacked_top", other: "stacked_bottom", **free}
                rules.append(({**has, other: "table"}, stacked))
        else:
            for other in others:
                needs = {block: "stacked_top", other: "stacked_bottom", **free}
                rules.append((needs, {block: "table", other: "table"}))
    return rules


_RULES = {task: _rules(task) for task in INSTRUCTIONS}
