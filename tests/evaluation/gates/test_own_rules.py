"""Rules that users write: what they get, what becomes of their errors, and that edits are seen."""

import importlib
import itertools
import subprocess
import sys
import textwrap

import pytest

from rrf import config
from rrf.evaluation.gates import own_rules
from rrf.evaluation.gates.decision import decide
from rrf.evaluation.gates.gate import GateCfg, load_gate
from tests.evaluation.gates.test_gates import champion, gate, report

NUMBERS = itertools.count()
HEAD = "from rrf.evaluation.gates.verdicts import Check\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module, or the files of a package, and trust it; returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def _write(text: str = "", **files: str) -> str:
        name = f"rules_of_test_{next(NUMBERS)}"  # each is imported anew
        files = {f"{name}/{file}.py": text for file, text in files.items()} or {f"{name}.py": text}
        for file, content in files.items():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(HEAD + textwrap.dedent(content))
        importlib.invalidate_caches()
        config.trust(name)
        return name

    return _write


def ruled(rule: str, options: dict | None = None, **changes) -> GateCfg:
    changes = {"looks": [20], **changes}
    return gate(rules={rule: options or {}}, rule_sources=own_rules.sources([rule]), **changes)


def test_a_rule_gets_the_episodes_of_the_look_its_options_the_level_and_the_rivals(write):
    module = write(
        """
        def rule(evaluation, options, level, rivals):
            solved = {role: sum(e.success for e in r.episodes) for role, r in rivals.items()}
            numbers = [len(evaluation.episodes), options["x"], round(level, 6), solved]
            return [Check("mine", "pass", f"mine: {numbers}")]
        """
    )
    # level .05 * 6 / pi^2 = .030396; of 25 episodes on each of two tasks, a look at 20 sees 40
    rules = ruled(f"{module}:rule", {"x": [1, {"y": None}]})
    verdict = decide(report(20, 20, episodes=25), rules, champion(9, 8, episodes=25))
    [check] = [check for check in verdict.checks if check.name == "mine"]
    assert check.reason == "mine: [40, [1, {'y': None}], 0.030396, {'champion': 17}]"
    assert verdict.outcome == "pass"


@pytest.mark.parametrize(("outcome", "verdict"), [("pass", "pass"), ("fail", "fail")])
def test_a_rule_decides_with_the_others(write, outcome, verdict):
    module = write(f"def rule(*_): return [Check('mine', {outcome!r}, 'mine: 7')]")
    assert decide(report(20, 20), ruled(f"{module}:rule")).outcome == verdict
    assert decide(report(3, 3), ruled(f"{module}:rule")).outcome == "fail"


def test_a_rule_that_holds_asks_for_the_next_look_and_fails_at_the_last(write):
    module = write("def rule(*_): return [Check('mine', 'hold', 'mine: 7')]")
    gate = ruled(f"{module}:rule", looks=[20, 35])
    held = decide(report(20, 20), gate)
    assert (held.outcome, held.more_episodes_per_task) == ("hold", 15)
    last = decide(report(35, 35, episodes=35), gate, round=1)
    assert last.reasons[0] == "fail: mine: 7; undecided after the last of 2 looks"


def test_a_rule_is_not_asked_before_the_episodes_of_the_look_are_there(write):
    module = write("def rule(*_): raise AssertionError")
    held = decide(report(12, 12, episodes=12), ruled(f"{module}:rule", looks=[20, 35]))
    assert held.reasons == ["hold: 12 episodes per task, look 1 of 2 needs 20"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("return again(1)", "RecursionError: maximum recursion depth exceeded"),
        ("return []", r"TypeError: returned [], expected a list of one or more checks"),
        ("return None", "TypeError: returned None, expected a list"),
        ("return True", "TypeError: returned True, expected a list"),
        ("return [True]", "TypeError: True is no check; its outcome is one of ('pass', 'hold'"),
        ("return [Check('a', 'passed', 'b')]", "TypeError: Check(name='a', outcome='passed'"),
        ("return [Check('a', ['pass'], 'b')]", "TypeError: Check(name='a', outcome=['pass']"),
    ],
)
def test_an_error_in_a_rule_is_a_fail_with_its_text(write, body, reason):
    # Python 3.13.0 does not count calls of functions with *arguments, until memory is full
    module = write(f"def again(x): return again(x)\n\n\ndef rule(*_): {body}")
    verdict = decide(report(20, 20), ruled(f"{module}:rule"))
    assert verdict.outcome == "fail"
    assert verdict.reasons[0].startswith(f"fail: {module}:rule: {reason}")
    assert "\n" not in verdict.reasons[0]


def test_long_texts_are_cut(write):
    module = write("def rule(*_): return [Check('a', 'pass', 'x' * 10_000)]")
    reasons = decide(report(20, 20), ruled(f"{module}:rule")).reasons
    assert max(map(len, reasons)) == len("pass: ") + 500 + 1


def test_a_rule_cannot_change_what_others_see(write):
    module = write(
        """
        def spoil(evaluation, options, level, rivals):
            for episode in evaluation.episodes:
                episode.success = True
            options["x"] = 2
            rivals.clear()
            return [Check("a", "pass", "a")]

        def count(evaluation, options, level, rivals):
            solved = sum(e.success for e in evaluation.episodes)
            return [Check("b", "pass", f"b: {solved} {options} {list(rivals)}")]
        """
    )
    names = [f"{module}:spoil", f"{module}:count"]
    rules = {name: {"x": 1} for name in names}
    both = gate(rules=rules, rule_sources=own_rules.sources(names), looks=[20])
    evaluation = report(3, 2)
    verdict = decide(evaluation, both, champion(3, 2))
    assert "pass: b: 5 {'x': 1} ['champion']" in verdict.reasons
    assert verdict.success["successes"] == 5
    assert evaluation.overall.successes == 5
    assert both.rules == rules


def test_name_options_and_code_are_a_part_of_the_gate(write, tmp_path):
    first, second = (write(f"def rule(*_): return [Check('a', 'pass', {n!r})]") for n in "xy")
    hashes = {ruled(f"{name}:rule").hash for name in (first, second)}
    hashes |= {ruled(f"{first}:rule", {"x": n}).hash for n in (1, 2)}
    assert len(hashes) == 4
    (tmp_path / "protocols").mkdir()
    (tmp_path / "gates").mkdir()
    (tmp_path / "protocols/p.yaml").write_text("{name: p, tasks: [a, b], seed: 1}")
    file = tmp_path / "gates/g.yaml"
    text = f"name: g\nprotocol: p\noverall_lower_bound: 0.5\nrules:\n  {first}:rule: {{x: 1}}\n"
    file.write_text(text)
    read = load_gate(file)
    assert read.rule_sources == own_rules.sources([f"{first}:rule"])
    assert GateCfg.from_dict(read.to_dict()).hash == read.hash
    file.write_text(text.replace("{x: 1}", "{x: 2026-01-02}"))
    with pytest.raises(ValueError, match=r"g\.yaml: .*options of rules must be text, numbers"):
        load_gate(file)
    file.write_text(text + "rule_sources: {}\n")
    with pytest.raises(ValueError, match=r"leave rule_sources out of the file"):
        load_gate(file)
    for wrong in ("[a]", "{3: {}}", f"{{{first}:rule: 7}}"):
        file.write_text(text.partition("rules:")[0] + f"rules: {wrong}\n")
        with pytest.raises(ValueError, match=r"g\.yaml: rules"):
            load_gate(file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os:system", "in a module that you named; .* add --import os"),
        ("rrf.atomic:remove", "in a module that you named; .* add --import rrf.atomic"),
        ("{module}:nothing", "which cannot be found: .*no attribute 'nothing'"),
        ("{module}:Path", "not a function that is defined there"),
        ("{module}:NUMBER", "not a function that is defined there"),
        ("{module}.deeper:rule", "which cannot be found: No module named"),
        ("{module}", "which cannot be found"),
    ],
)
def test_only_functions_in_modules_that_the_user_named_are_rules(write, name, message):
    module = write("from pathlib import Path\nNUMBER = 3\ndef rule(*_): return []")
    with pytest.raises(ValueError, match=f"the gate's rule is '.*', .*{message}"):
        own_rules.sources([name.format(module=module)])


def test_a_gate_whose_rule_is_missing_or_has_changed_is_refused_by_name(write):
    module = write("def rule(*_): return [Check('a', 'pass', 'b')]")
    recorded = ruled(f"{module}:rule")
    other = recorded.replace(rule_sources={f"{module}:rule": "0" * 64})
    with pytest.raises(
        ValueError, match=rf"rule '{module}:rule' has changed: .* with 000000000000"
    ):
        decide(report(20, 20), other)
    away = recorded.replace(rules={"gone:rule": {}}, rule_sources={"gone:rule": "0" * 64})
    with pytest.raises(ValueError, match=r"the gate's rule is 'gone:rule', .* add --import gone"):
        decide(report(20, 20), away)


PACKAGE = {
    "__init__": "VERSION = 1",
    "main": "from . import near\ndef rule(*_):\n    from .sub_far import limit\n    return []",
    "near": "import json\nX = 1",
    "sub_far": "def limit(): return __import__('os')",
    "unused": "Y = 1",
}


@pytest.mark.parametrize(
    ("file", "is_seen"),
    [("__init__", True), ("main", True), ("near", True), ("sub_far", True), ("unused", False)],
)
def test_an_edit_of_any_file_of_the_package_that_a_rule_imports_is_seen(
    tmp_path, monkeypatch, file, is_seen
):
    """Each in a process of its own, as code is imported once."""
    script = (
        "import sys; from rrf import config; from rrf.evaluation.gates import own_rules; "
        "config.trust('packaged'); print(own_rules.sources(['packaged.main:rule']))"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packaged").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / f"packaged/{name}.py").write_text(text)
    printed = []
    for addition in ("", "\n# another\n"):
        with (tmp_path / f"packaged/{file}.py").open("a") as opened:
            opened.write(addition)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert (printed[0] != printed[1]) == is_seen


def test_what_this_process_runs_is_what_it_imported_whatever_an_editor_writes(write, tmp_path):
    module = write("def rule(*_): return [Check('a', 'pass', 'b')]")
    before = own_rules.sources([f"{module}:rule"])
    (tmp_path / f"{module}.py").write_text("def rule(*_): raise ValueError")
    assert own_rules.sources([f"{module}:rule"]) == before
    assert decide(report(20, 20), ruled(f"{module}:rule")).outcome == "pass"
