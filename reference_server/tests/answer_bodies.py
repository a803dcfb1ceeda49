"""Bodies of answers to draw and to damage: results and problem objects, and nearly such."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from request_bodies import JUNK

from checkpoint_model import schemas

RESULT_SCHEMA = schemas.load("result.schema.json")
PROBLEM_SCHEMA = schemas.load("problem.schema.json")


def values_of(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that one member's schema accepts."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum", 9999))
        case "object":
            return st.fixed_dictionaries(
                {name: values_of(inner) for name, inner in schema["properties"].items()}
            )
        case _ if "pattern" in schema:
            text = st.from_regex(schema["pattern"].replace("$", r"\Z"))
            return st.none() | text if "null" in schema["type"] else text
        case _:
            return st.text(min_size=schema.get("minLength", 0), max_size=9)


@st.composite
def near_answers(draw: st.DrawFn) -> dict[str, Any]:
    """A result or a problem object, in most cases with one or two things wrong."""
    schema, other = draw(st.permutations([RESULT_SCHEMA, PROBLEM_SCHEMA]))
    optional = sorted(schema["properties"].keys() - set(schema["required"]))
    some = draw(st.lists(st.sampled_from(optional), unique=True)) if optional else []
    answer = {
        name: draw(values_of(schema["properties"][name])) for name in [*schema["required"], *some]
    }
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        name = draw(st.sampled_from(sorted(answer)))
        match draw(st.sampled_from(["value", "missing", "foreign", "null", "unknown"])):
            case "value":
                answer[name] = draw(JUNK)
            case "null":
                answer[name] = None
            case "missing":
                del answer[name]
            case "foreign":
                foreign = draw(st.sampled_from(sorted(other["properties"])))
                answer[foreign] = draw(values_of(other["properties"][foreign]))
            case "unknown":
                answer[draw(st.text(max_size=9))] = draw(JUNK)
    return answer
