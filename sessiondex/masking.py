"""Masking of values that look like credentials, by their shape and never by a mention of a word.

Works on UTF-8 bytes, so that offsets are the byte offsets of the original. Masking comes before
cutting (`query.cutting`), never after. Every shape is recognised by its first `HORIZON_BYTES`, so
a text whose end is cut that far behind what is shown is masked like the whole. It refuses to
guess: a hash, a UUID, an id or a base64 image is no credential.

Time is linear in the text: a shape is looked at only where its marker stands, and no further than
its longest value.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

HORIZON_BYTES: Final = 512
"""A value is recognised by its beginning of this length; its end may lie further on."""

MARGIN_BYTES: Final = 16 * 1024
"""How far around a place a text must be known to mask that place like the whole: more than the
longest value (a PEM key of RSA 16384 has 12.6 KiB)."""

NAME_BYTES: Final = 128
"""How far before its value a name, and what stands between them, may begin."""

PEM_BEGIN: Final = b"-----BEGIN"
"""Only values that begin so have white space inside."""

SHORTEST_BYTES: Final = 8
"""No text that is shorter holds a value that is masked."""


class Span(NamedTuple):
    """A masked stretch of the original, `[start, end)`, and what kind of credential it is."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Masked:
    """A whole text after masking. `spans` are character offsets of the original."""

    text: str
    spans: list[Span]
    count: int


# ---------------------------------------------------------------- the table of shapes

_FRESH: Final = (
    rb"(?:(?<![A-Za-z0-9_-])"
    rb"|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})"  # escaped in JSON or in a URL
    rb"|(?<=\[\dm)|(?<=\[\d\dm)|(?<=\[\d;\d\dm))"  # after a colour of a terminal
)
"""A place where a value may begin that a word could end with: not inside a word."""

_END: Final = rb"(?![A-Za-z0-9])"


@dataclass(frozen=True)
class _Shape:
    kind: str
    markers: tuple[bytes, ...]
    body: bytes
    back: int
    """How far before its marker the pattern begins."""
    is_value: Callable[[bytes], bool] | None
    longest: int
    """Bytes after the beginning of its marker beyond which no value is looked for."""

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Compiled when its marker is first met: all of them take longer than a short search."""
        return re.compile(self.body)


def _shape(
    kind: str,
    markers: str,
    pattern: str,
    *,
    back: int = 0,
    is_value: Callable[[bytes], bool] | None = None,
    fresh: bool = True,
    longest: int = 2048,
) -> _Shape:
    """One row. The group `v` is what is masked, the whole match where there is none."""
    body = (_FRESH if fresh else b"") + pattern.encode()
    return _Shape(kind, tuple(markers.encode().split()), body, back, is_value, longest)


def _looks_random(value: bytes) -> bool:
    """Whether a value changes between lower, upper and digits like a key and not like a name."""
    classes = value[:256].translate(_CLASSES, b"_-./+=~")
    kinds = len(set(classes))
    if kinds < 2 or len(set(value[:256])) < 8:
        return False
    changes = sum(a != b for a, b in pairwise(classes))
    # Base62 changes at 0.6 of its places, hexadecimal at 0.45, base36 at 0.4; a camel case name
    # at 0.3, also one with digits like Ed25519PrivateKey.
    needed = 0.2 if kinds == 2 and classes.count(b"d") >= 3 else 0.38
    return changes >= needed * len(classes)


_CLASSES = (
    bytes(
        ord("d") if chr(b).isdigit() else ord("u") if chr(b).isupper() else ord("l")
        for b in range(128)
    )
    + bytes([ord("l")]) * 128
)


def _has_digit_and_letter(value: bytes) -> bool:
    return len(value) > len(value.translate(None, b"0123456789")) > 0


def _is_password(value: bytes) -> bool:
    """Whether the password part of a URL is a value, not a variable or a row of stars."""
    return value[:1] not in b"$%{[<*" and len(set(value)) > 2


def _is_basic(value: bytes) -> bool:
    """Whether the value of a Basic header decodes to `user:password`."""
    padded = value.rstrip(b"=")
    try:
        decoded = binascii.a2b_base64(padded + b"=" * (-len(padded) % 4))
    except binascii.Error:
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode().isprintable()


# What may stand between the lines of a key: line breaks, escaped ones, quotes, line numbers.
_GAP = r"[^A-Za-z+/=-]{0,24}"

_SHAPES: Final[tuple[_Shape, ...]] = (
    _shape(
        "private_key",
        "-----BEGIN",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        rf"(?:{_GAP}n?(?:Proc-Type|DEK-Info|Version|Comment|Charset):[^\n\\]{{0,100}}){{0,3}}"
        rf"(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)++"
        rf"(?:(?:{_GAP}[A-Za-z0-9+/=]{{1,15}}+)?{_GAP}n?-----END [A-Z0-9 ]{{1,60}}-----)?",
        fresh=False,
        longest=MARGIN_BYTES - 1024,
    ),
    _shape("anthropic_key", "sk-", r"sk-ant-[A-Za-z0-9_-]{20,}", fresh=False),
    _shape(
        "openai_key",
        "sk-",
        r"sk-[A-Za-z]{4,7}-[A-Za-z0-9_-]{20,}",
        is_value=_has_digit_and_letter,
    ),
    _shape("openrouter_key", "sk-", r"sk-or-v\d-[0-9a-f]{40,}"),
    _shape("openai_key", "sk-", r"sk-[A-Za-z0-9]{32,}", is_value=_has_digit_and_letter),
    _shape("xai_key", "xai-", r"xai-[A-Za-z0-9]{40,}"),
    _shape("groq_key", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _shape("perplexity_key", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    _shape("tavily_key", "tvly-", r"tvly-[A-Za-z0-9-]{32,}"),
    _shape("langsmith_key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{8,}"),
    _shape("replicate_token", "r8_", r"r8_[A-Za-z0-9]{37,}", is_value=_has_digit_and_letter),
    _shape("huggingface_token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _shape("aws_access_key_id", "AKIA ASIA", r"A[KS]IA[A-Z0-9]{16}" + _END.decode()),
    _shape(
        "aws_session_token",
        "IQoJb3JpZ2lu FwoGZXIvYXdz",
        r"\w{12}[A-Za-z0-9+/=%]{60,}",
        longest=4096,
    ),
    _shape("google_api_key", "AIza", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _shape("google_oauth_token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}"),
    _shape("google_oauth_secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    _shape("google_refresh_token", "1//0", r"1//0[A-Za-z0-9_-]{40,}"),
    _shape(
        "azure_key",
        "AccountKey= SharedAccessKey=",
        r"(?:Account|SharedAccess)Key=(?P<v>[A-Za-z0-9+/]{40,}={0,2})",
    ),
    _shape("azure_sas", "sig=", r"sig=(?P<v>(?:[A-Za-z0-9+/]|%2[BFbf]){40,}(?:%3[Dd]|=){0,2})"),
    _shape("azure_client_secret", "Q~", r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}", back=4),
    _shape("azure_key", "JQQJ9", r"[A-Za-z0-9]{52}JQQJ9[A-Za-z0-9]{20,}", back=52),
    _shape("azure_devops_token", "AZDO", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}", back=76),
    _shape("github_token", "github_pat_", r"github_pat_[A-Za-z0-9_]{40,}", fresh=False),
    _shape(
        "github_token",
        "gh",
        r"gh[pousr]_[A-Za-z0-9]{36,}",
        fresh=False,
    ),
    _shape(
        "gitlab_token",
        "gl",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat)-[A-Za-z0-9_.-]{20,}",
        is_value=_has_digit_and_letter,
        fresh=False,
    ),
    _shape("bitbucket_token", "ATBB", r"ATBB[A-Za-z0-9]{28,}"),
    _shape("atlassian_token", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{60,}"),
    _shape(
        "slack_token",
        "xox",
        r"xox[abceoprsd][.-][A-Za-z0-9%.-]{16,}",
        is_value=_has_digit_and_letter,
        fresh=False,
    ),
    _shape("slack_token", "xapp-", r"xapp-\d-[A-Z0-9]{6,}-\d{6,}-[A-Za-z0-9]{16,}"),
    _shape(
        "slack_webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<v>T[A-Z0-9]{6,}/[A-Za-z0-9/]{16,})",
    ),
    _shape(
        "discord_webhook", "/api/webhooks/", r"/api/webhooks/\d{10,}/(?P<v>[\w-]{60,})", fresh=False
    ),
    _shape("stripe_key", "_live_ _test_", r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}", back=2),
    _shape("stripe_webhook_secret", "whsec_", r"whsec_[A-Za-z0-9+/]{24,}={0,2}"),
    _shape("twilio_key", "SK", r"SK[0-9a-f]{32}" + _END.decode()),
    _shape("sendgrid_key", "SG.", r"SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,}"),
    _shape("mailgun_key", "key-", r"key-[0-9a-f]{32}" + _END.decode()),
    _shape("mailchimp_key", "-us", r"[0-9a-f]{32}-us\d{1,2}" + _END.decode(), back=32),
    _shape("npm_token", "npm_", r"npm_[A-Za-z0-9]{36,}", fresh=False),
    _shape("pypi_token", "pypi-Ag", r"pypi-Ag[A-Za-z0-9_-]{50,}", fresh=False),
    _shape("rubygems_key", "rubygems_", r"rubygems_[0-9a-f]{48}"),
    _shape("crates_token", "cio", r"cio[A-Za-z0-9]{32}" + _END.decode(), is_value=_looks_random),
    _shape("docker_token", "dckr_", r"dckr_[a-z]{3}_[A-Za-z0-9_-]{27,}"),
    _shape(
        "telegram_token",
        ":AA",
        r"(?<=\d{8}):(?P<v>AA[A-Za-z0-9_-]{33})(?![A-Za-z0-9_-])",
        fresh=False,
    ),
    _shape("digitalocean_token", "_v1_", r"do[opr]_v1_[0-9a-f]{64}", back=3),
    _shape("heroku_key", "HRKU-", r"HRKU-[A-Za-z0-9_-]{30,}"),
    _shape("databricks_token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?" + _END.decode()),
    _shape("vault_token", "hv", r"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    _shape("doppler_token", "dp.", r"dp\.[a-z]{2,5}\.(?:[a-z0-9_-]{1,40}\.)?[A-Za-z0-9]{40,}"),
    _shape("grafana_token", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    _shape("new_relic_key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _shape("sentry_token", "sntry", r"sntry[su]_[A-Za-z0-9_=+/]{40,}"),
    _shape("linear_key", "lin_api_", r"lin_api_[A-Za-z0-9]{32,}"),
    _shape("notion_token", "ntn_", r"ntn_[A-Za-z0-9]{40,}"),
    _shape("figma_token", "figd_", r"figd_[A-Za-z0-9_-]{36,}"),
    _shape("postman_key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _shape("shopify_token", "shp", r"shp[a-z]{2}_[0-9a-fA-F]{32}"),
    _shape("supabase_token", "sbp_", r"sbp_[0-9a-f]{40}"),
    _shape("tailscale_key", "tskey-", r"tskey-[a-z]{2,12}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}"),
    _shape("age_key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _shape(
        "jwt",
        "eyJ",
        r"eyJ[A-Za-z0-9_-]{8,}+\.(?:eyJ[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+)?"
        r"|(?:[A-Za-z0-9_-]*+\.){2,3}[A-Za-z0-9_-]{8,}+)",
        longest=8192,
    ),
    _shape(
        "url_credentials",
        "://",
        r"://[^\s/?#:@\"'<>\\`]{0,128}:(?P<v>[^\s/?#@\"'<>\\`]{1,256})@(?=[A-Za-z0-9_\[$])",
        is_value=_is_password,
        fresh=False,
    ),
    _shape(
        "basic_credentials",
        "asic ",
        r"asic {1,2}(?P<v>[A-Za-z0-9+/]{8,}={0,2})",
        is_value=_is_basic,
        fresh=False,
    ),
    _shape(
        "bearer_token",
        "earer EARER",
        r"(?:earer|EARER)(?: {1,2}|%20)(?P<v>[A-Za-z0-9_.~+/-]{20,}+={0,2})",
        is_value=_looks_random,
        fresh=False,
    ),
    _shape(
        "authorization",
        "uthorization UTHORIZATION",
        r"(?i:uthorization)[\"'\\]{0,4} ?[:=] ?[\"'\\]{0,4}(?:[A-Za-z]{3,10} {1,2})?"
        r"(?P<v>[A-Za-z0-9_.~+/-]{20,}+={0,2})",
        is_value=_looks_random,
        fresh=False,
    ),
    # Names that say what the value is: NAME=value, "name": "value", name: value, --name value.
    *(
        _shape(
            "secret_value",
            markers,
            rf"(?i:{name})[\"'\\]{{0,4}}\s{{0,2}}(?:=>|:=|[:=])\s{{0,2}}[\"'\\]{{0,4}}"
            r"(?P<v>[A-Za-z0-9+/_.~-]{16,}+={0,2})(?![(\[{])",
            is_value=_looks_random,
            fresh=False,
        )
        for markers, name in (
            (
                "key Key KEY",
                r"(?:(?<=api)|(?<=api[_-])|(?<=secret)|(?<=secret[_-])|(?<=access)"
                r"|(?<=access[_-])|(?<=auth[_-])|(?<=account[_-])|(?<=private[_-])"
                r"|(?<=encryption[_-])|(?<=signing[_-])|(?<=license[_-]))key",
            ),
            ("oken OKEN", r"oken"),
            ("ecret ECRET", r"ecret(?:[_-]?(?:access[_-]?)?key)?"),
            ("asswor ASSWOR asswd ASSWD", r"assw(?:or)?d"),
            ("X-Amz-Signature", r"X-Amz-Signature"),
        )
    ),
    _shape(
        "secret_value",
        "PASSWORD PASSWD _PASS _PWD",
        r"(?:PASSWORD|PASSWD|_PASS|_PWD)=[\"']?(?P<v>[A-Za-z0-9+/_.~!@#%^&*-]{6,256})(?![(\[{])",
        is_value=_has_digit_and_letter,
        fresh=False,
    ),
)

_BY_MARKER: Final[dict[bytes, list[tuple[int, _Shape]]]] = {}
for _order, _row in enumerate(_SHAPES):
    for _marker in _row.markers:
        _BY_MARKER.setdefault(_marker, []).append((_order, _row))


def find_secrets(data: bytes) -> list[Span]:
    """The stretches of UTF-8 text that look like credentials: sorted, apart, in byte offsets.

    Values that overlap are cut where the earlier one ends, so that a span never grows beyond one
    value and depends only on what stands near it.
    """
    if len(data) < SHORTEST_BYTES:
        return []
    found: list[tuple[int, int, int]] = []
    for marker, shapes in _BY_MARKER.items():
        at = data.find(marker)
        while at >= 0:
            for order, shape in shapes:
                begin = at - shape.back
                match = shape.pattern.match(data, begin, at + shape.longest) if begin >= 0 else None
                if match is not None:
                    start, end = match.span("v" if "v" in shape.pattern.groupindex else 0)
                    if shape.is_value is None or shape.is_value(data[start:end]):
                        found.append((start, order, end))
                        break
            at = data.find(marker, at + 1)
    found.sort()
    spans: list[Span] = []
    last = 0
    for start, order, end in found:
        if end > last:
            spans.append(Span(max(start, last), end, _SHAPES[order].kind))
            last = end
    return spans


def mask(text: str) -> Masked:
    """The whole text with every credential replaced by `[REDACTED:kind]`."""
    data = text.encode("utf-8", "surrogatepass")
    spans = find_secrets(data)
    if not spans:
        return Masked(text, [], 0)
    if not text.isascii():
        spans = [
            Span(_characters(data[: span.start]), _characters(data[: span.end]), span.kind)
            for span in spans
        ]
    parts: list[str] = []
    at = 0
    for span in spans:
        parts += (text[at : span.start], placeholder(span))
        at = span.end
    parts.append(text[at:])
    return Masked("".join(parts), spans, len(spans))


def placeholder(span: Span) -> str:
    """What stands in the place of a masked value."""
    return f"[REDACTED:{span.kind}]"


def _characters(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))
