"""The pages of the documentation say what the code says, without building the site."""

import re
import shlex

import pytest
import typer
import yaml

from rrf.cli import app
from rrf.presets import PRESETS
from tests.docs.pages import DOCS, ROOT, blocks, commands, with_files, written

PAGES = [*written(), ROOT / "README.md"]


def nav_of(entry) -> list[str]:
    """The pages of a navigation."""
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in nav_of(child)]


@pytest.fixture(scope="module")
def nav() -> list[str]:
    return nav_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])


def test_the_navigation_has_every_page_once(nav):
    pytest.importorskip("mkdocs", reason="needs: uv pip install -e '.[docs]'")
    from docs import generated_pages

    made = [page for page in generated_pages.pages() if not page.startswith(generated_pages.API)]
    pages = [path.relative_to(DOCS).as_posix() for path in written()]
    assert sorted(nav) == sorted([*pages, *made])


def test_every_public_module_has_a_place_in_the_reference():
    pytest.importorskip("mkdocs", reason="needs: uv pip install -e '.[docs]'")
    from docs import generated_pages

    shown = {m for package in generated_pages.packages() for m in generated_pages.modules(package)}
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "rrf").rglob("*.py")]
    modules = {".".join(file.parts) for file in files if not file.name.startswith("_")}
    assert modules - shown == set()


def test_the_readme_fits_on_a_few_screens():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert "make demo" in text
    assert "make test" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(page):
    """As a code host shows them: pages made from the code are not there."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path = (page.parent / target.partition("#")[0]).resolve()
        assert "://" in target or path.exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_shows_files_as_they_are(page):
    text = page.read_text()
    assert "--8<--" not in text, "a code host shows includes as they are written"
    assert text == with_files(text), "python -m tests.docs.pages writes the files into the pages"


def test_a_changed_file_is_seen():
    changed = """<!-- mkdocs.yml -->\n```yaml title="x"\nnot: this\n```"""
    assert "site_name: RoboRenForce" in with_files(changed)


def test_the_site_begins_as_the_readme_does():
    what = (ROOT / "README.md").read_text().partition("![")[0]
    assert (DOCS / "index.md").read_text().startswith(what)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_are_those_of_the_command_line(page):
    for line in commands(page, "rrf"):
        words = shlex.split(line)[1:]
        command = typer.main.get_command(app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not hasattr(command, "commands"), f"{page.name}: no such command: {line}"
        options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= options | {"--help"}, f"{page.name}: {line}"
        target = words[0] if words and command.name in ("train", "show") else ""
        is_own = "--import" in words or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", target)
        assert is_own or target in PRESETS, f"{page.name}: no preset '{target}'"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_are_those_of_the_makefile(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for text in blocks(page, "bash"):
        for target in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{page.name}: make {target}"


def test_the_reference_has_every_command():
    pytest.importorskip("mkdocs", reason="needs: uv pip install -e '.[docs]'")
    from docs import generated_pages

    page = generated_pages.cli_page()
    for command in ("rrf train", "rrf data convert", "rrf models rollback"):
        assert f"`{command}`\n" in page


def test_what_stands_in_angles_is_no_tag():
    pytest.importorskip("mkdocs", reason="needs: uv pip install -e '.[docs]'")
    from docs.generated_pages import with_angles

    assert with_angles("`--out <dir>`: runs/<key>") == "`--out <dir>`: runs/&lt;key>"
