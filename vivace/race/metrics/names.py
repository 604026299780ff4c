"""Names of metrics: ``val_loss``, ``Validation Loss`` and ``valid/loss`` are one; ``loss`` alone may be several.

A name is a set of words in which synonyms are one. Which data it is about (training, validation, test) is a word like
the others, and no name without that word is preferred over one with it: ``accuracy`` must not mean the accuracy of the
training batches because it is printed first.

>>> MetricName.of("Validation Accuracy") == MetricName.of("val_acc"), MetricName.of("Acc@1") == MetricName.of("top1")
(True, True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["SPLITS", "MetricName", "choose", "split_word"]

_SYNONYMS = {
    "val": "val", "valid": "val", "validation": "val", "validating": "val", "validate": "val", "eval": "val",
    "evaluation": "val", "evaluating": "val", "evaluate": "val", "dev": "val",
    "test": "test", "testing": "test", "heldout": "test", "holdout": "test",
    "train": "train", "training": "train", "tr": "train",
    "acc": "accuracy", "accuracies": "accuracy", "accu": "accuracy",
    "acc1": "accuracy", "top1": "accuracy", "prec1": "accuracy",
    "acc5": "accuracy top5", "top5": "accuracy top5", "prec5": "accuracy top5",
    "losses": "loss", "ppl": "perplexity", "err": "error", "errors": "error",
}  # fmt: skip
_FILLERS = frozenset({"average", "avg", "mean", "set", "the", "of", "on", "is", "score", "value", "metric", "metrics"})
SPLITS = frozenset({"val", "test", "train"})
_RATIOS = frozenset({"accuracy", "precision", "recall", "f1", "iou", "miou", "auc", "auroc", "map", "dice"})
_RANKED = re.compile(r"\b(acc|accuracy|prec|precision|top)\s*[@_-]?\s*([15])\b(?!\.)", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class MetricName:
    """``words``: its meaning, without synonyms and fillers."""

    words: frozenset[str]

    @classmethod
    def of(cls, text: str) -> MetricName:
        text = _RANKED.sub(_ranked, text.replace("_", " "))
        found: set[str] = set()
        for word in re.findall(r"[^\W_]*[^\W\d_][^\W_]*", _CAMEL.sub(" ", text)):
            found.update(_SYNONYMS.get(word.lower(), word.lower()).split())
        return cls(frozenset(found - _FILLERS or found))

    @property
    def split(self) -> frozenset[str]:
        """The data it is about, if the name says so."""
        return self.words & SPLITS

    @property
    def is_ratio(self) -> bool:
        """Whether its values lie between 0 and 1, or between 0 and 100 %."""
        return bool(self.words & _RATIOS)

    def within(self, split: frozenset[str]) -> MetricName:
        """The same name on a line that is about ``split``; a name that says so itself stays what it is."""
        return self if self.split or not split else MetricName(self.words | split)

    def may_mean(self, printed: MetricName) -> bool:
        return self.words <= printed.words


def _ranked(found: re.Match[str]) -> str:
    """``top-1 accuracy`` and ``Acc@1`` are one word each."""
    return f" {found[1].lower().replace('accuracy', 'acc').replace('precision', 'prec')}{found[2]} "


def split_word(text: str) -> frozenset[str]:
    """The last word of ``text`` that says which data is meant.

    >>> sorted(split_word("training took 3 s; Test set")), sorted(split_word("Epoch"))
    (['test'], [])
    """
    for word in reversed(re.findall(r"[a-z]+", text.lower())):
        if _SYNONYMS.get(word) in SPLITS:
            return frozenset({_SYNONYMS[word]})
    return frozenset()


def choose(wanted: MetricName, seen: Iterable[MetricName]) -> list[MetricName]:
    """Those of the ``seen`` names that ``wanted`` may mean: one if the answer is clear, several if it is not.

    A name that says exactly what is wanted wins over longer ones (``val loss`` over ``val nll loss``), but not over one
    about other data.

    >>> a, b, c = map(MetricName.of, ("acc", "val acc", "best val acc"))
    >>> choose(a, [a, b]) == [a, b], choose(b, [a, b, c]) == [b]
    (True, True)
    """
    fitting = [name for name in seen if wanted.may_mean(name)]
    exact = [name for name in fitting if name.words - name.split == wanted.words - wanted.split]
    decided = {name.split for name in exact}
    return [name for name in fitting if name in exact or name.split not in decided]
