"""The server whose scripts are edited: what does not fit is never served unchanged."""

import json
from pathlib import Path

import pytest

from checkpoint_lua import scripts
from checkpoint_reference_server.edited import EditedScripts, EditError, edited


def test_an_edit_is_made_in_every_script_that_has_the_text() -> None:
    """Without an action; with one in that script alone."""
    edit = {"action": "", "old": "return reply('CHECKPOINT_NOT_FOUND')", "new": "return nil"}
    changed = edited(scripts(), [edit])
    assert {a for a in changed if changed[a].text != scripts()[a].text} == {
        "transition",
        "abandon",
        "status",
    }
    assert all(changed[a].sha1 != scripts()[a].sha1 for a in ("transition", "abandon", "status"))
    assert changed["claim"] == scripts()["claim"]
    one = edited(scripts(), [{**edit, "action": "status"}])
    assert {a for a in one if one[a] != scripts()[a]} == {"status"}


@pytest.mark.parametrize(
    "edit",
    [
        {"action": "", "old": "no such text", "new": ""},
        {"action": "claim", "old": "no such text", "new": ""},
        {"action": "claim", "old": "now_ms", "new": ""},
    ],
    ids=["nowhere", "not there", "more than once"],
)
def test_an_edit_that_does_not_fit_is_an_error(edit: dict[str, str]) -> None:
    """The unchanged script would be a right server under a wrong one's name."""
    with pytest.raises(EditError, match="not once in"):
        edited(scripts(), [edit])


def test_what_does_not_fit_is_said_beside_the_file(tmp_path: Path) -> None:
    """For whoever put it there: an internal fault alone might be the mutant's own."""
    path = tmp_path / "edits.json"
    path.write_text(json.dumps([{"action": "claim", "old": "no such text", "new": ""}]))
    with pytest.raises(EditError):
        EditedScripts(scripts(), path)["status"]
    said = path.with_name("edits.json.unfit").read_text()
    assert said == "not once in claim: no such text"


def test_the_file_is_read_anew_when_another_is_put_in_its_place(tmp_path: Path) -> None:
    """So that one server can be one mutant after the other."""
    path = tmp_path / "edits.json"
    path.write_text("[]")
    now = EditedScripts(scripts(), path)
    assert dict(now) == dict(scripts())
    following = tmp_path / "following.json"
    edit = {"action": "claim", "old": "GENERATIONS_MAX = 16", "new": "GENERATIONS_MAX = 17"}
    following.write_text(json.dumps([edit]))
    following.replace(path)
    assert "GENERATIONS_MAX = 17" in now["claim"].text
    assert now["status"] == scripts()["status"]
