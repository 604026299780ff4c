"""What every record shares: it is immutable, carries its kind and schema version, and goes to JSON and back.

A stage of vivace hands its result to the next as one of these. Nothing here knows what a record contains.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from vivace.errors import UserError
from vivace.files import read_user_text, write_text_atomically

__all__ = ["Part", "Record", "RecordError", "last_line"]


class RecordError(UserError):
    """A record file that cannot be used: absent, damaged, of another kind, or from a newer vivace."""


class Part(BaseModel):
    """A piece of a record: immutable, strict about unknown fields, NaN and infinity survive JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Record(Part):
    """A whole record. Subclasses set ``KIND`` and raise ``VERSION`` when a field changes its meaning."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1

    kind: str = ""
    schema_version: int = 0

    def model_post_init(self, _context: Any) -> None:
        object.__setattr__(self, "kind", self.KIND)
        object.__setattr__(self, "schema_version", self.VERSION)

    def to_json(self) -> str:
        return self.model_dump_json(indent=2) + "\n"

    def save(self, path: Path | str) -> Path:
        """Write the record as JSON; a reader sees the old file or the whole new one, never a half."""
        return write_text_atomically(Path(path), self.to_json())

    @classmethod
    def from_json(cls, text: str, source: str = "the text") -> Self:
        """Parse a record, or raise ``RecordError`` with the reason in one sentence."""
        return cls._validated(_parse_object(text, source), source)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        try:
            text = read_user_text(path)
        except FileNotFoundError:
            raise RecordError(f"{path} does not exist") from None
        except UserError as error:
            raise RecordError(error.message) from None
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"{path} cannot be read: {error}") from None
        return cls.from_json(text, str(path))

    @classmethod
    def _validated(cls, data: dict[str, Any], source: str) -> Self:
        kind, version = data.get("kind"), data.get("schema_version")
        if kind != cls.KIND:
            raise RecordError(f"{source} holds a {kind or 'file of unknown kind'}, not a {cls.KIND}")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise RecordError(f"{source} is damaged: schema_version is {version!r}")
        if version > cls.VERSION:
            raise RecordError(
                f"{source} was written by a newer vivace (schema {version}; this one reads up to {cls.VERSION})",
                hint="pip install --upgrade vivace",
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "the top level"
            raise RecordError(f"{source} is damaged: {where}: {first['msg']}") from None


def _parse_object(text: str, source: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise RecordError(f"{source} is damaged: not JSON ({error})") from None
    except RecursionError:
        raise RecordError(f"{source} is damaged: nested too deeply for a record") from None
    if not isinstance(data, dict):
        raise RecordError(f"{source} is damaged: expected one JSON object")
    return data


def last_line(text: str) -> str:
    """What a program said last: where it failed, most often why."""
    return (text.strip().splitlines() or [""])[-1][:200]
