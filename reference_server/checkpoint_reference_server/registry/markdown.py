"""The little Markdown that descriptions are written in."""

from collections.abc import Iterable, Sequence


def bullets(sentences: Iterable[str]) -> str:
    """A list, one sentence an item."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a row of heads."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def steps(sentences: Iterable[str]) -> str:
    """A numbered list."""
    return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))


def code_list(words: Iterable[object]) -> str:
    """Words of the contract, set as code, with commas between them."""
    return ", ".join(f"`{word}`" for word in words)
