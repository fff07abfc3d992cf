"""Words that mark what is worth remembering, in four languages; what our scripted policies know.

Written from what such sentences look like, not from the gold: much is said without any of these
words, and much that has one is no memory. RE2 can run each of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sessiondex.features.staging.record import CandidateKind

CUES: Final[Mapping[str, Mapping[CandidateKind, str]]] = {
    "en": {
        "open_question": r"still open|open question|undecided|(have|has)n't decided|not sure yet",
        "lesson": r"\blessons?\b|\blearn(ed|t)\b|next time|in hindsight|root cause|taught us",
        "working_assumption": r"\bassum(e|ed|es|ing|ptions?)\b|\bI suppose\b|\bpresumably\b",
        "decision": r"\bdecided\b|let's (go with|use|take)|\bwe('ll| will) (go with|use|take)\b|"
        r"\bgo(es)? with\b|settled on|\brejected\b|\bagreed on\b",
        "constraint": r"\bmust\b|\bha(s|ve) to\b|\bforbidden\b|\ballowed\b|\brequire(d|ment)\b|"
        r"\bnever\b",
        "preference": r"\bprefer\b|\brather (have|not|see)\b|\bI (really )?like\b|"
        r"\b(don't|do not) like\b|\balways\b",
    },
    "de": {
        "open_question": r"noch offen|noch nicht (entschieden|sicher)|offene Frage|ungeklärt",
        "lesson": r"\bgelernt\b|\bLehre\b|beim nächsten Mal|im Nachhinein|\bUrsache gefunden\b",
        "working_assumption": r"\bnehmen wir an\b|\bwir nehmen an\b|\bAnnahme\b|\bvermutlich\b",
        "decision": r"\bentschieden\b|\bgeeinigt\b|\bnehmen wir\b|\bwir nehmen\b|\bbeschlossen\b",
        "constraint": r"\bmuss\b|\bdarf\b|\bverboten\b|\berlaubt\b|\bzwingend\b",
        "preference": r"\blieber\b|\b(hätte|möchte)\b|\bmag ich\b|\bimmer\b|\bgrundsätzlich\b|"
        r"ab jetzt",
    },
    "es": {
        "open_question": r"\bpendiente\b|sin decidir|todavía no (sé|sabemos)|por decidir",
        "lesson": r"\blección\b|\baprend(imos|ida|ido)\b|la próxima vez|causa encontrada",
        "working_assumption": r"\bsupon(go|emos)\b|\bsupuesto\b|\bimagino\b|\basumimos\b",
        "decision": r"\bdecidido\b|\bdecidimos\b|\bacordamos\b|\bquedamos con\b|\busamos\b",
        "constraint": r"\bdebe\b|\btiene que\b|\bprohib(e|ido)\b|\bpermite\b|\bobligatorio\b",
        "preference": r"\bprefiero\b|\bme gusta(ría)?\b|\bsiempre\b",
    },
    "ja": {
        "open_question": r"未定|未解決|まだ決め|まだ決ま",
        "lesson": r"教訓|学んだ|学びました|今思えば|次回は",
        "working_assumption": r"前提|おそらく|と仮定",
        "decision": r"決めました|決まりました|でいきます|採用",
        "constraint": r"禁止|必ず|許可|てはいけない|なければなりません",
        "preference": r"好み|てほしい|いつも",
    },
}
"""Asked in this order: the first kind that has a cue in a sentence is its kind."""

CORRECTIONS: Final[Mapping[str, str]] = {
    "en": r"scratch (that|what)|changed my mind|no longer|was changed|\bactually\b|instead of",
    "de": r"doch nicht|anders überlegt|nicht mehr|hat sich geändert|anstelle",
    "es": r"mejor no|cambiado|ya no|en lugar de",
    "ja": r"やっぱり|変わりました|もう(禁止|やめ)",
}
"""Words with which somebody takes something back."""

PASSING: Final[Mapping[str, str]] = {
    "en": r"for now|right now|back in|\bthanks?\b|have a look|can you|line \d+",
    "de": r"erstmal|gerade|bis gleich|\bdanke\b|schau mal|schaust du|Zeile \d+",
    "es": r"por ahora|vuelvo|gracias|míralo|puedes|línea \d+",
    "ja": r"とりあえず|ありがとう|見てください|行目",
}
"""Words of sentences that are about this moment."""

BACKWARD: Final[Mapping[str, str]] = {
    "en": r"\b(it|this|there)\b",
    "de": r"\b(das|dort|daraus)\b",
    "es": r"\b(eso|esto|ahí)\b",
    "ja": r"^(それ|そこ|これ)",
}
"""Words that point back to what was said before, looked for up to the first comma or colon."""

AGENT_CUES: Final[Mapping[str, str]] = {
    "en": r"root cause|the lesson is|I am assuming",
    "de": r"Ursache gefunden|Lehre daraus",
    "es": r"causa encontrada|la lección es",
    "ja": r"教訓",
}
"""What of an agent's own words is worth a look."""

AGENT_SAID: Final[Mapping[str, str]] = {
    "en": "The agent concluded: {claim}",
    "de": "Der Agent hat festgestellt: {claim}",
    "es": "El agente concluyó: {claim}",
    "ja": "エージェントの結論：{claim}",
}

_STOP_WORDS: Final[Mapping[str, str]] = {
    "en": r"\b(the|is|are|and|not|to|of|that|we|you|with|has|for|on|I)\b",
    "de": r"\b(ist|und|nicht|bitte|die|das|von|ich|wir|für|bei|beim|dass|mit|den|zu)\b",
    "es": r"\b(el|las?|los|de|que|qué|por|para|una?|está|y|en|con|eso)\b",
    "ja": r"[ぁ-ん]+",
}
_LEAST_SHARE: Final = 0.1
"""Of the stop words of the commonest language."""


def language_of(text: str) -> str:
    """The language of a text by its commonest words; English where none is known."""
    counts = _stop_words(text)
    return max(counts, key=lambda name: counts[name])


def languages_of(text: str) -> list[str]:
    """The languages that a text of several messages seems to hold."""
    counts = _stop_words(text)
    least = max(counts.values()) * _LEAST_SHARE
    return [name for name, count in counts.items() if count >= least] or ["en"]


def _stop_words(text: str) -> dict[str, int]:
    return {
        name: len(re.findall(pattern, text, re.IGNORECASE)) for name, pattern in _STOP_WORDS.items()
    }


def any_cue(language: str) -> str:
    """One regular expression for all kinds."""
    return "(?i)" + "|".join(f"(?:{each})" for each in CUES[language].values())
