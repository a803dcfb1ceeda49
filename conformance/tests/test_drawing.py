"""What Hypothesis is given, so that it need not find it out in every run."""

import gzip
import json
import unicodedata
from pathlib import Path

from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal import charmap

from checkpoint_conformance.checks import drawing


def test_what_is_known_of_utf_8_is_what_hypothesis_finds_out(tmp_path: Path) -> None:
    """In the very file in which it looks, and the same in it."""
    found_out, given = tmp_path / "found-out", tmp_path / "given"
    set_hypothesis_home_dir(found_out)
    try:
        charmap.intervals_from_codec.__wrapped__("utf-8")  # beside what it remembers
    finally:
        set_hypothesis_home_dir(None)
    drawing._put_codec(given)
    assert _intervals(given) == _intervals(found_out)


def _intervals(home: Path) -> object:
    file = home / "unicode_data" / unicodedata.unidata_version / drawing.CODEC_FILE
    return json.loads(gzip.decompress(file.read_bytes()))
