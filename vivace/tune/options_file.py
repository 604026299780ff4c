"""What a tune or a search was asked, kept in its folder so that ``--resume`` can go on with it."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from vivace.errors import UserError
from vivace.files import read_user_text, write_text_atomically

__all__ = ["read_options", "write_options"]

Options = TypeVar("Options")


def write_options(path: Path, options: Any) -> None:
    """``options`` is a dataclass. For its user only: the command as it was typed may hold a secret."""
    write_text_atomically(path, json.dumps(asdict(options), indent=2) + "\n", mode=0o600)


def read_options(path: Path, kind: type[Options], if_missing: UserError) -> Options:
    """The dataclass ``kind`` from its file, or a ``UserError`` that says what is wrong with the file."""
    try:
        text = read_user_text(path)
        options = TypeAdapter(kind).validate_json(text)
    except FileNotFoundError:
        raise if_missing from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise _unreadable(path, f"{where}: {first['msg']}" if where else first["msg"]) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from None
    # pydantic would leave out in silence what a newer vivace has written
    unknown = set(json.loads(text)) - {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise _unreadable(path, f"there is no option {', '.join(sorted(unknown))}")
    return options


def _unreadable(path: Path, why: str) -> UserError:
    return UserError(f"{path} cannot be read: {why}", hint="start again, without --resume")
