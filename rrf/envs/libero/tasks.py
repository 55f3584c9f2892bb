"""LIBERO's tasks (arXiv:2306.03310): five suites, and all of them together.

A task has the name of LIBERO's file: its scene, if the suite has several, and its instruction with
underscores. Suites and tasks are in LIBERO's order.
"""

import re
from collections.abc import Iterable, Mapping

_SCENE = re.compile(r"[A-Z_]+_SCENE\d+_")


def instruction_of(task: str) -> str:
    """The instruction of a task in words."""
    return _SCENE.sub("", task).replace("_", " ")


def _task_names(instructions: Iterable[str], scene: str = "") -> list[str]:
    return [f"{scene}{text.replace(' ', '_')}" for text in instructions]


def _task_names_in_scenes(instructions: Mapping[str, Iterable[str]]) -> list[str]:
    return [
        name for scene, texts in instructions.items() for name in _task_names(texts, f"{scene}_")
    ]


_PLACES = (
    "between the plate and the ramekin",
    "next to the ramekin",
    "from table center",
    "on the cookie box",
    "in the top drawer of the wooden cabinet",
    "on the ramekin",
    "next to the cookie box",
    "on the stove",
    "next to the plate",
    "on the wooden cabinet",
)
_OBJECTS = (
    "alphabet soup",
    "cream cheese",
    "salad dressing",
    "bbq sauce",
    "ketchup",
    "tomato sauce",
    "butter",
    "milk",
    "chocolate pudding",
    "orange juice",
)
_GOALS = (
    "open the middle drawer of the cabinet",
    "put the bowl on the stove",
    "put the wine bottle on top of the cabinet",
    "open the top drawer and put the bowl inside",
    "put the bowl on top of the cabinet",
    "push the plate to the front of the stove",
    "put the cream cheese in the bowl",
    "turn on the stove",
    "put the bowl on the plate",
    "put the wine bottle on the rack",
)
_LONG = {
    "LIVING_ROOM_SCENE2": (
        "put both the alphabet soup and the tomato sauce in the basket",
        "put both the cream cheese box and the butter in the basket",
    ),
    "KITCHEN_SCENE3": ("turn on the stove and put the moka pot on it",),
    "KITCHEN_SCENE4": ("put the black bowl in the bottom drawer of the cabinet and close it",),
    "LIVING_ROOM_SCENE5": (
        "put the white mug on the left plate and put the yellow and white mug on the right plate",
    ),
    "STUDY_SCENE1": ("pick up the book and place it in the back compartment of the caddy",),
    "LIVING_ROOM_SCENE6": (
        "put the white mug on the plate and put the chocolate pudding to the right of the plate",
    ),
    "LIVING_ROOM_SCENE1": ("put both the alphabet soup and the cream cheese box in the basket",),
    "KITCHEN_SCENE8": ("put both moka pots on the stove",),
    "KITCHEN_SCENE6": ("put the yellow and white mug in the microwave and close it",),
}
_MANY = {
    "KITCHEN_SCENE10": (
        "close the top drawer of the cabinet",
        "close the top drawer of the cabinet and put the black bowl on top of it",
        "put the black bowl in the top drawer of the cabinet",
        "put the butter at the back in the top drawer of the cabinet and close it",
        "put the butter at the front in the top drawer of the cabinet and close it",
        "put the chocolate pudding in the top drawer of the cabinet and close it",
    ),
    "KITCHEN_SCENE1": (
        "open the bottom drawer of the cabinet",
        "open the top drawer of the cabinet",
        "open the top drawer of the cabinet and put the bowl in it",
        "put the black bowl on the plate",
        "put the black bowl on top of the cabinet",
    ),
    "KITCHEN_SCENE2": (
        "open the top drawer of the cabinet",
        "put the black bowl at the back on the plate",
        "put the black bowl at the front on the plate",
        "put the middle black bowl on the plate",
        "put the middle black bowl on top of the cabinet",
        "stack the black bowl at the front on the black bowl in the middle",
        "stack the middle black bowl on the back black bowl",
    ),
    "KITCHEN_SCENE3": (
        "put the frying pan on the stove",
        "put the moka pot on the stove",
        "turn on the stove",
        "turn on the stove and put the frying pan on it",
    ),
    "KITCHEN_SCENE4": (
        "close the bottom drawer of the cabinet",
        "close the bottom drawer of the cabinet and open the top drawer",
        "put the black bowl in the bottom drawer of the cabinet",
        "put the black bowl on top of the cabinet",
        "put the wine bottle in the bottom drawer of the cabinet",
        "put the wine bottle on the wine rack",
    ),
    "KITCHEN_SCENE5": (
        "close the top drawer of the cabinet",
        "put the black bowl in the top drawer of the cabinet",
        "put the black bowl on the plate",
        "put the black bowl on top of the cabinet",
        "put the ketchup in the top drawer of the cabinet",
    ),
    "KITCHEN_SCENE6": (
        "close the microwave",
        "put the yellow and white mug to the front of the white mug",
    ),
    "KITCHEN_SCENE7": (
        "open the microwave",
        "put the white bowl on the plate",
        "put the white bowl to the right of the plate",
    ),
    "KITCHEN_SCENE8": (
        "put the right moka pot on the stove",
        "turn off the stove",
    ),
    "KITCHEN_SCENE9": (
        "put the frying pan on the cabinet shelf",
        "put the frying pan on top of the cabinet",
        "put the frying pan under the cabinet shelf",
        "put the white bowl on top of the cabinet",
        "turn on the stove",
        "turn on the stove and put the frying pan on it",
    ),
    "LIVING_ROOM_SCENE1": (
        "pick up the alphabet soup and put it in the basket",
        "pick up the cream cheese box and put it in the basket",
        "pick up the ketchup and put it in the basket",
        "pick up the tomato sauce and put it in the basket",
    ),
    "LIVING_ROOM_SCENE2": (
        "pick up the alphabet soup and put it in the basket",
        "pick up the butter and put it in the basket",
        "pick up the milk and put it in the basket",
        "pick up the orange juice and put it in the basket",
        "pick up the tomato sauce and put it in the basket",
    ),
    "LIVING_ROOM_SCENE3": (
        "pick up the alphabet soup and put it in the tray",
        "pick up the butter and put it in the tray",
        "pick up the cream cheese and put it in the tray",
        "pick up the ketchup and put it in the tray",
        "pick up the tomato sauce and put it in the tray",
    ),
    "LIVING_ROOM_SCENE4": (
        "pick up the black bowl on the left and put it in the tray",
        "pick up the chocolate pudding and put it in the tray",
        "pick up the salad dressing and put it in the tray",
        "stack the left bowl on the right bowl and place them in the tray",
        "stack the right bowl on the left bowl and place them in the tray",
    ),
    "LIVING_ROOM_SCENE5": (
        "put the red mug on the left plate",
        "put the red mug on the right plate",
        "put the white mug on the left plate",
        "put the yellow and white mug on the right plate",
    ),
    "LIVING_ROOM_SCENE6": (
        "put the chocolate pudding to the left of the plate",
        "put the chocolate pudding to the right of the plate",
        "put the red mug on the plate",
        "put the white mug on the plate",
    ),
    "STUDY_SCENE1": (
        "pick up the book and place it in the front compartment of the caddy",
        "pick up the book and place it in the left compartment of the caddy",
        "pick up the book and place it in the right compartment of the caddy",
        "pick up the yellow and white mug and place it to the right of the caddy",
    ),
    "STUDY_SCENE2": (
        "pick up the book and place it in the back compartment of the caddy",
        "pick up the book and place it in the front compartment of the caddy",
        "pick up the book and place it in the left compartment of the caddy",
        "pick up the book and place it in the right compartment of the caddy",
    ),
    "STUDY_SCENE3": (
        "pick up the book and place it in the front compartment of the caddy",
        "pick up the book and place it in the left compartment of the caddy",
        "pick up the book and place it in the right compartment of the caddy",
        "pick up the red mug and place it to the right of the caddy",
        "pick up the white mug and place it to the right of the caddy",
    ),
    "STUDY_SCENE4": (
        "pick up the book in the middle and place it on the cabinet shelf",
        "pick up the book on the left and place it on top of the shelf",
        "pick up the book on the right and place it on the cabinet shelf",
        "pick up the book on the right and place it under the cabinet shelf",
    ),
}

_OF_SUITE = {
    "libero-spatial": _task_names(
        f"pick up the black bowl {p} and place it on the plate" for p in _PLACES
    ),
    "libero-object": _task_names(
        f"pick up the {thing} and place it in the basket" for thing in _OBJECTS
    ),
    "libero-goal": _task_names(_GOALS),
    "libero-10": _task_names_in_scenes(_LONG),
    "libero-90": _task_names_in_scenes(_MANY),
}
SUITES = {
    **{suite: tuple(tasks) for suite, tasks in _OF_SUITE.items()},
    "libero-130": tuple(task for tasks in _OF_SUITE.values() for task in tasks),
}
"""Suite -> its tasks. libero-130 is all of them."""
MAX_STEPS = {
    "libero-spatial": 220,
    "libero-object": 280,
    "libero-goal": 300,
    "libero-10": 520,
    "libero-90": 400,
    "libero-130": 520,
}
"""Suite -> actions after which an episode has failed, as in the evaluations of OpenVLA, OpenVLA-OFT
and openpi: a little more than the longest demonstration. In libero-130, which they do not evaluate
as one, every task keeps the limit of its own suite."""
