"""The user's ``SBATCH_…`` variables: for sbatch they win over the lines of a script, so some would change the job.

Those that name an option of the script are taken away from sbatch, and that is said. The others stay: a site's profile
may set the account, or the user a reservation. Reads the environment; called by ``submit`` and ``preflight``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

__all__ = ["environment_for", "overriding", "said_of"]

_OPTIONS = {"TIMELIMIT": "time", "ARRAY_INX": "array", "NO_REQUEUE": "requeue", "GPUS": "gres", "NUM_NODES": "nodes"}
_LINE = re.compile(r"^#SBATCH --(?:no-)?([\w-]+)", re.MULTILINE)


def overriding(script: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variable → the option of the script (its text) that it would override.

    >>> overriding("#SBATCH --time=05:00:00\\n", {"SBATCH_TIMELIMIT": "10", "SBATCH_ACCOUNT": "abc"})
    {'SBATCH_TIMELIMIT': 'time'}
    """
    set_there = set(_LINE.findall(script))
    found = {}
    for name in sorted(environment):
        if name.startswith("SBATCH_"):
            option = _OPTIONS.get(name[7:], name[7:].lower().replace("_", "-"))
            if option in set_there:
                found[name] = option
    return found


def environment_for(script: str) -> dict[str, str]:
    """The environment in which sbatch does what the script says."""
    taken_away = overriding(script)
    return {name: value for name, value in os.environ.items() if name not in taken_away}


def said_of(script: str) -> tuple[str, ...]:
    """One sentence for each variable that has an effect on the job, or would have had one."""
    sentences = [
        f"${name} is set here and is not used: the job asks for its own --{option}"
        for name, option in overriding(script).items()
    ]
    if os.environ.get("SBATCH_EXPORT", "ALL").upper() == "NONE":
        sentences.append("$SBATCH_EXPORT is NONE: the job starts without your variables; --env NAME passes one on")
    return tuple(sentences)
