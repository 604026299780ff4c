"""The command with holes: ``--lr {lr}`` gets a value in each trial; ``{{`` and ``}}`` are braces.

>>> Template.read(["train.py", "--lr={lr}", "--tag", "{{x}}"], ["lr"]).filled({"lr": "0.1"})
('train.py', '--lr=0.1', '--tag', '{x}')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vivace.errors import UserError

__all__ = ["OWN_NAMES", "Template"]

OWN_NAMES = {
    "seed": "{seed} is the seed of a trial",
    "trial": "{trial} is the number of a trial",
    "folder": "{folder} is the folder of a trial",
}
"""What vivace itself can put into the command."""

_HOLE = re.compile(r"\{\{|\}\}|\{(?P<name>[A-Za-z_]\w*(?:\.\w+)*)\}|[{}]")


@dataclass(frozen=True)
class Template:
    words: tuple[str, ...]
    holes: frozenset[str]

    @classmethod
    def read(cls, words: Sequence[str], parameters: Iterable[str], all_used: bool = True) -> Template:
        """A ``UserError`` unless every hole has a parameter and (with ``all_used``) every parameter a hole."""
        wanted = list(parameters)
        holes = {hole for word in words for hole in _holes(word)}
        if unknown := sorted(holes - {*wanted, *OWN_NAMES}):
            raise UserError(
                f"{{{unknown[0]}}} in the command has no parameter",
                hint=f"--param '{unknown[0]}=log(1e-4,1)'; double braces of its own: {{{{{unknown[0]}}}}}",
            )
        if all_used and (unused := [name for name in wanted if name not in holes]):
            raise UserError(
                f"the parameter {unused[0]} is nowhere in the command",
                hint=f"… -- python train.py --option {{{unused[0]}}}",
            )
        return cls(tuple(words), frozenset(holes))

    def filled(self, texts: Mapping[str, str]) -> tuple[str, ...]:
        """``texts``: one for each hole; others are left aside."""
        return tuple(_HOLE.sub(lambda found: _text(found, texts), word) for word in self.words)


def _holes(word: str) -> list[str]:
    found = list(_HOLE.finditer(word))
    if any(one[0] in ("{", "}") for one in found):
        raise UserError(
            f"a brace in {word!r} is not a placeholder", hint="write {{ and }} for braces that belong to the command"
        )
    return [one["name"] for one in found if one["name"]]


def _text(found: re.Match[str], texts: Mapping[str, str]) -> str:
    return texts[found["name"]] if found["name"] else found[0][0]
