"""What a search was asked, kept in its folder so that an interrupted one can go on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.records.base import write_text_atomically

__all__ = ["Asked", "read_asked", "write_asked"]

FILE = "find.json"


@dataclass(frozen=True)
class Asked:
    """``what``: 'batch' or 'loader'. ``flag``, ``values`` and ``margin_gib`` are for the batch."""

    what: str
    command: tuple[str, ...]
    budget_s: float = 600.0
    steps: int = 20
    timeout_s: float | None = None
    flag: str = ""
    values: tuple[int, ...] | None = None
    margin_gib: float = 2.0


def write_asked(folder: Path, asked: Asked) -> None:
    # For its user only: the command as it was typed, for --resume, may hold a secret.
    write_text_atomically(folder / FILE, json.dumps(asdict(asked), indent=2) + "\n", mode=0o600)


def read_asked(folder: Path, what: str) -> Asked:
    hint = f"vivace find {what} --resume runs/NAME-001"
    try:
        fields: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        asked = Asked(**{**fields, **lists})
    except FileNotFoundError:
        raise UserError(f"{folder} holds no search to go on with", hint=hint) from None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{folder / FILE} cannot be read: {error}") from None
    if asked.what != what:
        raise UserError(
            f"{folder} holds a search for the {asked.what}", hint=f"vivace find {asked.what} --resume {folder}"
        )
    return asked
