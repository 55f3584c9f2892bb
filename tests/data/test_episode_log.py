"""Records of logged episodes that contradict each other, and bytes from anybody."""

import struct
import zlib

import numpy as np
import pytest

from rrf import formats
from rrf.data import episode_log, log_records
from rrf.data.episode_log import Summary

BEGIN = {
    "kind": "begin",
    "format_version": 1,
    "episode": "episode-1",
    "policy": {},
    "start": {},
    "fps": 10.0,
}
END = {"kind": "end", "t": 1.0, "outcome": "success"}


def step(index, state=(0.0, 0.0), **other):
    seen = {"observation.state": np.array(state, np.float32)}
    record = {"kind": "step", "index": index, "observation": seen, "action": np.zeros(2)}
    return record | {"by": "policy", "t": 0.1 * index} | other


def summary_of(*records):
    summary = Summary("here")
    for record in records:
        summary.add(record)
    return summary


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([step(0)], "a record 'step' cannot stand there"),
        ([BEGIN, BEGIN], "a record 'begin' cannot stand there"),
        ([BEGIN, END, step(0)], "a record 'step' cannot stand there"),
        ([BEGIN, step(0), step(2)], "step 2 stands where 1 should"),
        ([BEGIN, step(0), step(0)], "step 0 stands where 1 should"),
        ([BEGIN, step(0, by="somebody")], "by whom"),
        ([BEGIN, step(0, action=None)], "step 0 has no action"),
        ([BEGIN, step(0), step(1, state=[0.0])], r"\(1,\).*the first one.*\(2,\)"),
        ([BEGIN, {"kind": "thought"}], "of the kind 'thought'"),
        ([BEGIN, END | {"outcome": "great"}], "the outcome is 'great'"),
        ([BEGIN | {"episode": "../../etc"}], "is no id"),
        ([BEGIN | {"clock": []}], "values of other types"),
        ([BEGIN | {"start": {"pose": np.zeros(3)}}], "values of other types"),
        ([BEGIN, step(0, t=[])], "values of other types"),
        ([BEGIN, step(0, progress={})], "values of other types"),
        ([BEGIN | {"clock": {"unix_s": 1}}, END | {"clock": {"unix_s": []}}], "of other types"),
        ([BEGIN, END | {"score": b"1"}], "values of other types"),
    ],
)
def test_records_that_cannot_follow_each_other_are_refused(records, why):
    with pytest.raises(ValueError, match=f"here.*{why}"):
        summary_of(*records)


def test_a_log_of_a_newer_rrf_is_refused():
    with pytest.raises(formats.NewerFormatError, match="install a newer rrf"):
        summary_of(BEGIN | {"format_version": 99})


def test_where_a_robot_stood_still_is_seen():
    moving = [step(t, state=(0.1 * min(t, 5), 0.0)) for t in range(20)]
    assert summary_of(BEGIN, *moving).last_moved == 5
    assert summary_of(BEGIN, step(0), step(1)).last_moved == 0


def test_interventions_are_counted_by_their_beginnings():
    by = ["policy", "operator", "operator", "policy", "operator"]
    summary = summary_of(BEGIN, *(step(t, by=who) for t, who in enumerate(by)))
    assert (summary.interventions, summary.operator_steps) == (2, 3)


def test_a_clock_that_was_set_during_the_episode_is_noticed():
    def clock(unix_s, monotonic_s):
        return {"clock": {"unix_s": unix_s, "monotonic_s": monotonic_s}}

    begin, end = BEGIN | clock(1000.0, 5.0), END | clock(1070.0, 15.0)
    assert summary_of(begin, end).to_dict()["clock_jump_s"] == 60.0


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_behind_whole_records_end_there(tmp_path, seed):
    rng = np.random.default_rng(seed)
    whole = b"".join(log_records.pack_record(step(t)) for t in range(3))
    path = tmp_path / "000000.rrflog"
    for _ in range(50):
        path.write_bytes(whole + rng.bytes(int(rng.integers(0, 200))))
        read = [(record["index"], end) for record, end in episode_log.records_in(path)]
        assert [index for index, _ in read] == [0, 1, 2]
        assert read[-1][1] == len(whole)


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_never_changes_what_is_read_but_ends_it(tmp_path, seed):
    rng = np.random.default_rng(seed)
    records = [log_records.pack_record(step(t, state=(t, 0.5))) for t in range(4)]
    content = bytearray(b"".join(records))
    place = int(rng.integers(len(content)))
    content[place] ^= 1 << int(rng.integers(8))
    path = tmp_path / "000000.rrflog"
    path.write_bytes(content)
    ends = np.cumsum([len(record) for record in records])
    read = [record["index"] for record, _ in episode_log.records_in(path)]
    assert read == list(range(int(np.searchsorted(ends, place, side="right"))))


@pytest.mark.parametrize(
    "payload",
    [
        b"\x81\xa1a",  # ends within
        b"\xc1",
        b"\x01",  # a number
        b"\x83\xa5dtype\xa3|O8\xa5shape\x91\x01\xa4data\xc4\x08" + bytes(8),  # objects
        b"\x83\xa5dtype\xa3<f4\xa5shape\x91\xce\x7f\xff\xff\xff\xa4data\xc4\x04" + bytes(4),
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path, payload):
    path = tmp_path / "000000.rrflog"
    path.write_bytes(struct.pack("<II", len(payload), zlib.crc32(payload)) + payload)
    with pytest.raises(ValueError, match="at byte 0 holds no record"):
        list(episode_log.records_in(path))
