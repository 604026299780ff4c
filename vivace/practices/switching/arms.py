"""Which practices are on in the process now, and how it gets from one set to another."""

from __future__ import annotations

from collections.abc import Mapping

from vivace.practices.engine.change import Change
from vivace.practices.switching.live import Flags, Live

__all__ = ["Arms"]


class Arms:
    """``changes``: by word, in the order in which they are applied. All off at first."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self.changes = dict(changes)
        self.on: tuple[str, ...] = ()
        self.flags: Flags | None = None
        for change in self.changes.values():
            change.on = False

    def switch_to(self, words: tuple[str, ...], live: Live) -> None:
        """Raises what a practice raises; those that were on before it are on then."""
        if set(words) == set(self.on):
            return
        if self.flags is None:
            self.flags = Flags()
        for word in reversed([word for word in self.on if word not in words]):
            self._switch(word, False, live)
        self.flags.put_back()
        for word in [word for word in self.changes if word in words]:
            change = self.changes[word]
            if word in self.on:
                change.flags()  # were put back with the others
            else:
                self._switch(word, True, live)

    def _switch(self, word: str, on: bool, live: Live) -> None:
        change = self.changes[word]
        change.switch(on, live)
        change.on = on
        self.on = (*self.on, word) if on else tuple(other for other in self.on if other != word)
