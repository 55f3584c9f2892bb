"""Scenes that slots share one after the other."""

from rrf.envs.foreign.child_path.rrf_child.scenes import Scenes


def test_scenes_are_kept_for_slots_and_the_one_idle_longest_makes_place():
    loaded, closed = [], []

    def load(task):
        loaded.append(f"{task}{len(loaded)}")
        return loaded[-1]

    scenes = Scenes(load, closed.append, max_loaded=3)
    assert [scenes.give(0, "lift"), scenes.give(1, "lift")] == ["lift0", "lift1"]
    assert scenes.give(0, "lift") == "lift0"  # its own again
    assert scenes.give(0, "door") == "door2"
    assert (scenes[0], scenes[1], closed) == ("door2", "lift1", [])
    assert (scenes.task(0), scenes.task(1)) == ("door", "lift")
    assert scenes.give(0, "stack") == "stack3"
    assert closed == ["lift0"]  # idle for longer than door2
    assert scenes.give(1, "door") == "door2"
    assert loaded == ["lift0", "lift1", "door2", "stack3"]
    scenes.close()
    assert sorted(closed) == sorted(loaded)
