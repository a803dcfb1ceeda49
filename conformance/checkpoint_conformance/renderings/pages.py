"""What the self-contained pages have in common: their templates, and how text gets into them."""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Final

import jinja2
from markupsafe import Markup, escape

from checkpoint_conformance.plain import number, plain

_FOLDER: Final = "templates"


@cache
def environment() -> jinja2.Environment:
    """The templates of every page."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("checkpoint_conformance.renderings", _FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalized,
    )
    made.filters |= {"rule": rule_text, "number": number}
    return made


def _finalized(value: object) -> object:
    """Whatever is put into a page: nothing that does not print, nothing without end."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def own_file(name: str) -> Markup:
    """A style or a script of ours, as it is."""
    text = resources.files(__package__).joinpath(_FOLDER, name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - our own file


def digest(script: str) -> str:
    """By which a page's policy knows its one script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def rule_text(text: str) -> Markup:
    """The contract's words, whose code is code."""
    parts = plain(text).split("`")
    if len(parts) % 2 == 0:
        return escape(plain(text))
    shown = (
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(parts)
    )
    return Markup("").join(shown)
