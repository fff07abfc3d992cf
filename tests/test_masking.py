"""What looks like a credential is masked, what does not is left alone."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.masking import HORIZON_BYTES, find_secrets, mask, placeholder

SAMPLES = Path(__file__).resolve().parents[1].parent / "shared" / "samples"

ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
HEX = "0123456789abcdef"


def key(length: int, alphabet: str = ALNUM, seed: int = 7) -> str:
    """Letters and digits as a key has them. Put together here, so that no scanner finds a key."""
    rng = random.Random(f"{seed} {length} {alphabet}")
    while True:
        made = "".join(rng.choice(alphabet) for _ in range(length))
        if any(c.isdigit() for c in made) and any(c.isalpha() for c in made):
            return made


def pem(label: str = "RSA PRIVATE KEY", lines: int = 20) -> str:
    body = "\n".join(key(64, ALNUM + "+/", seed=line) for line in range(lines))
    return f"-----BEGIN {label}-----\n{body}\n{key(20)}==\n-----END {label}-----"


def jwt() -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(b'{"sub":"1234567890","name":"A","iat":1516239022}').decode()
    return f"{head}.{body.rstrip('=')}.{key(43)}"


SECRETS: dict[str, tuple[str, str]] = {
    "OpenAI project key": ("openai_key", "sk-proj-" + key(74, ALNUM + "-_")),
    "OpenAI old key": ("openai_key", "sk-" + key(20) + "T3BlbkFJ" + key(20)),
    "OpenAI service account": ("openai_key", "sk-svcacct-" + key(60)),
    "Anthropic key": ("anthropic_key", "sk-ant-" + "api03-" + key(90, ALNUM + "-_") + "AA"),
    "OpenRouter key": ("openrouter_key", "sk-or-v1-" + key(64, HEX)),
    "xAI key": ("xai_key", "xai-" + key(80)),
    "Groq key": ("groq_key", "gsk_" + key(52)),
    "Perplexity key": ("perplexity_key", "pplx-" + key(48)),
    "Replicate token": ("replicate_token", "r8_" + key(37)),
    "Hugging Face token": ("huggingface_token", "hf_" + key(34)),
    "AWS access key id": ("aws_access_key_id", "AKIA" + key(16, "ABCDEFGHIJKLMNOP234567")),
    "AWS temporary key id": ("aws_access_key_id", "ASIA" + key(16, "ABCDEFGHIJKLMNOP234567")),
    "AWS session token": ("aws_session_token", "IQoJb3JpZ2lu" + "X2Vj" + key(300, ALNUM + "/+")),
    "Google API key": ("google_api_key", "AIza" + key(35)),
    "Google OAuth token": ("google_oauth_token", "ya29." + key(100)),
    "Google client secret": ("google_oauth_secret", "GOCSPX-" + key(28)),
    "Azure client secret": ("azure_client_secret", "abc8Q~" + key(34)),
    "Azure DevOps token": ("azure_devops_token", key(76) + "AZDO" + key(4)),
    "Azure key": ("azure_key", key(52) + "JQQJ99" + key(26)),
    "GitHub token": ("github_token", "ghp_" + key(36)),
    "GitHub server token": ("github_token", "ghs_" + key(36)),
    "GitHub fine-grained token": ("github_token", "github_pat_" + key(22) + "_" + key(59)),
    "GitLab token": ("gitlab_token", "glpat-" + key(20)),
    "Bitbucket token": ("bitbucket_token", "ATBB" + key(32)),
    "Atlassian token": ("atlassian_token", "ATATT3" + key(186)),
    "Slack bot token": ("slack_token", "xoxb-" + "123456789012-1234567890123-" + key(24)),
    "Slack app token": ("slack_token", "xapp-" + "1-A0123456789-1234567890123-" + key(64, HEX)),
    "Stripe key": ("stripe_key", "sk_" + "live_" + key(24)),
    "Stripe restricted key": ("stripe_key", "rk_" + "test_" + key(24)),
    "Stripe webhook secret": ("stripe_webhook_secret", "whsec_" + key(32)),
    "Twilio key": ("twilio_key", "SK" + key(32, HEX)),
    "SendGrid key": ("sendgrid_key", "SG." + key(22) + "." + key(43)),
    "Mailgun key": ("mailgun_key", "key-" + key(32, HEX)),
    "Mailchimp key": ("mailchimp_key", key(32, HEX) + "-us12"),
    "npm token": ("npm_token", "npm_" + key(36)),
    "PyPI token": ("pypi_token", "pypi-Ag" + "EIcHlwaS5vcmc" + key(150)),
    "RubyGems key": ("rubygems_key", "rubygems_" + key(48, HEX)),
    "crates.io token": ("crates_token", "cio" + key(32)),
    "Docker token": ("docker_token", "dckr_pat_" + key(27)),
    "DigitalOcean token": ("digitalocean_token", "dop_v1_" + key(64, HEX)),
    "Databricks token": ("databricks_token", "dapi" + key(32, HEX)),
    "Vault token": ("vault_token", "hvs." + key(90)),
    "Grafana token": ("grafana_token", "glsa_" + key(32) + "_" + key(8, HEX)),
    "Linear key": ("linear_key", "lin_api_" + key(40)),
    "Figma token": ("figma_token", "figd_" + key(40)),
    "Postman key": ("postman_key", "PMAK-" + key(24, HEX) + "-" + key(34, HEX)),
    "Shopify token": ("shopify_token", "shpat_" + key(32, HEX)),
    "Supabase token": ("supabase_token", "sbp_" + key(40, HEX)),
    "JSON web token": ("jwt", jwt()),
    "private key": ("private_key", pem()),
    "OpenSSH private key": ("private_key", pem("OPENSSH PRIVATE KEY")),
    "PKCS8 private key": ("private_key", pem("PRIVATE KEY")),
    "PGP private key": ("private_key", pem("PGP PRIVATE KEY BLOCK")),
    "private key cut off": ("private_key", pem()[:700]),
    "private key in JSON": ("private_key", pem().replace("\n", "\\n")),
}
"""Name → kind and a value that is masked whole, wherever it stands."""


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "around",
    ["{}", "the key {} works", '{{"key": "{}"}}', "a='{}';", "x\\n{}\\ny", "日本{}語", "<{}>",
     "\n{}\n"],
)  # fmt: skip
def test_a_secret_is_masked_whole_wherever_it_stands(name: str, around: str) -> None:
    kind, secret = SECRETS[name]
    text = around.format(secret)
    masked = mask(text)
    assert masked.text == around.format(f"[REDACTED:{kind}]")
    assert masked.count == 1
    ((start, end, found),) = masked.spans
    assert (text[start:end], found) == (secret, kind)


@pytest.mark.parametrize(
    ("before", "secret", "after", "kind"),
    [
        ("postgres://app:", "s3cr3tPass", "@db.example.com:5432/main", "url_credentials"),
        ("git clone https://user:", "hunter2x", "@example.com/x.git", "url_credentials"),
        ("redis://:", "p4ssw0rd", "@cache:6379/0", "url_credentials"),
        ("Authorization: Bearer ", key(40), "", "bearer_token"),
        ('{"Authorization": "Bearer ', key(40), '"}', "bearer_token"),
        ('-H "authorization: token ', key(40, HEX), '"', "authorization"),
        ("Authorization: Basic ", base64.b64encode(b"alice:s3cret-pw").decode(), "",
         "basic_credentials"),
        ("AWS_SECRET_ACCESS_KEY=", key(40, ALNUM + "/+"), "\n", "secret_value"),
        ('"aws_secret_access_key": "', key(40, ALNUM + "/+"), '"', "secret_value"),
        ("OPENAI_API_KEY=", key(32, HEX), "", "secret_value"),
        ("  api_key: ", key(32), "\n", "secret_value"),
        ("client_secret = '", key(24), "'", "secret_value"),
        ("DB_PASSWORD=", "tr0ub4dor&3", "\n", "secret_value"),
        ("//registry.npmjs.org/:_authToken=", key(36), "", "secret_value"),
        ("export SLACK_TOKEN=", key(40), "", "secret_value"),
        ("bot 123456789:", "AA" + key(33), " running", "telegram_token"),
        ("https://hooks.slack.com/services/", "T01234567/B01234567/" + key(24), "",
         "slack_webhook"),
        ("https://discord.com/api/webhooks/123456789012345678/", key(68), "", "discord_webhook"),
        ("AccountName=x;AccountKey=", key(86, ALNUM + "+/") + "==", ";EndpointSuffix=y",
         "azure_key"),
        ("https://x.blob.core.windows.net/c?sv=2022&sig=", key(43) + "%3D", "&se=2026",
         "azure_sas"),
        ("\x1b[32m", "ghp_" + key(36), "\x1b[0m", "github_token"),
        ("token%3D", "ghp_" + key(36), "%26x", "github_token"),
    ],
)  # fmt: skip
def test_only_the_value_is_masked_where_a_name_or_a_place_tells_what_it_is(
    before: str, secret: str, after: str, kind: str
) -> None:
    assert mask(before + secret + after).text == f"{before}[REDACTED:{kind}]{after}"


HARMLESS = {
    "SHA-1": "commit " + hashlib.sha1(b"x").hexdigest(),
    "SHA-256": "sha256:" + hashlib.sha256(b"x").hexdigest(),
    "SHA-512": hashlib.sha512(b"x").hexdigest(),
    "MD5 and a size": hashlib.md5(b"x").hexdigest() + "  file.txt",
    "integrity": '"integrity": "sha512-' + base64.b64encode(hashlib.sha512(b"x").digest()).decode(),
    "UUID": str(uuid.UUID(int=0x12345678123456781234567812345678)),
    "session id": '{"sessionId":"0442a060-edc3-4307-bddb-11a2951fd1a1"}',
    "call ids": "toolu_01A09q90qw90lq917835lq9 call_abcdefghij0123456789ABCD",
    "message id": "msg_01XFDUDYJgAACzvnptvVoYEL",
    "request id": "req_011CVqJ1T5nQGkYw8a9ThS5f",
    "PNG in base64": base64.b64encode(bytes(random.Random(1).randbytes(20_000))).decode(),
    "base64 of URLs": base64.urlsafe_b64encode(random.Random(2).randbytes(20_000)).decode(),
    "data URL": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQ",
    "words": "The password, the API key, the token and the secret are kept in the vault.",
    "mention of a header": "send Authorization: Bearer <token> or Authorization: Bearer $TOKEN",
    "mention of a private key": "it starts with -----BEGIN PRIVATE KEY----- then base64 follows",
    "public key": "-----BEGIN PUBLIC KEY-----\n" + key(64) + "\n-----END PUBLIC KEY-----",
    "certificate": "-----BEGIN CERTIFICATE-----\n" + key(64) + "\n-----END CERTIFICATE-----",
    "code reading a password": 'password = os.environ["DB_PASSWORD"]',
    "code with a token": "token = self.tokenizer.encode_plus(text, return_tensors=pt)",
    "code with a type": "private_key: Ed25519PrivateKey, public_key: x25519.X25519PublicKey",
    "typed code": "api_key: str | None = None",
    "code with a long name": "secret_key = settings.my_application_secret_key_setting_name",
    "camel case": "const apiKey = getApplicationSecretKeyFromEnvironment(config)",
    "variable": "OPENAI_API_KEY=$OPENAI_API_KEY GITHUB_TOKEN=${{ secrets.GITHUB_TOKEN }}",
    "placeholder": "OPENAI_API_KEY=your-api-key-goes-here-please",
    "empty": "PASSWORD=\nAPI_KEY=''",
    "count of tokens": "max_tokens: 1234567890123456 input_tokens=98765432109876543",
    "URL with a port": "http://localhost:8080/@scope/package and http://[::1]:80/",
    "scoped package URL": "https://registry.npmjs.org/@types/node/-/node-20.1.0.tgz",
    "ssh remote": "git@github.com:owner/repository.git",
    "mail": "mailto:someone@example.com",
    "URL with variable": "postgres://user:$PASSWORD@host/db and https://user:<token>@host",
    "CSS": ".sk-fading-circle .sk-circle12:before { animation-delay: -0.1s }",
    "task-force": "task-force-reorganisation-of-the-whole-department-2024",
    "npm script": "npm_config_user_agent npm_lifecycle_event npm_package_version",
    "hf code": "hf_hub_download hf_transfer_enabled hf_tokenizer",
    "key of a map": '{"key": "abcdefghijklmnopqrstuvwx", "cache-key": "build-0123456789abcdef"}',
    "cache key": "cache_key=" + hashlib.sha256(b"y").hexdigest(),
    "page token": '"nextPageToken": "next-page-of-the-listing"',
    "dotted version": "eyJ is how a JSON object begins in base64",
    "mask": "[REDACTED:github_token] and Authorization: Bearer [REDACTED:jwt]",
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_resembles_a_secret_is_left_alone(name: str) -> None:
    assert mask(HARMLESS[name]).spans == []


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_recognised_by_its_beginning(name: str) -> None:
    kind, secret = SECRETS[name]
    data = f"see {secret}".encode()[: 4 + HORIZON_BYTES]
    ((start, end, found),) = find_secrets(data)
    assert (start, end, found) == (4, len(data), kind)


def test_real_sessions_without_secrets_stay_as_they_are() -> None:
    if not SAMPLES.exists():
        pytest.skip("no samples")
    for path in SAMPLES.glob("*/*"):
        if path.suffix in (".json", ".traj"):
            assert find_secrets(path.read_bytes()) == [], path.name


PIECES = st.one_of(
    st.sampled_from([secret for _, secret in SECRETS.values()]),
    st.sampled_from(list(HARMLESS.values())),
    st.text(max_size=30),
    st.sampled_from([" ", "\n", "=", ":", '"', "\\n", "語", "🦀", "key", "token=", "eyJ"]),
)


@given(st.lists(PIECES, max_size=8))
def test_spans_tell_exactly_what_the_masked_text_leaves_out(pieces: list[str]) -> None:
    text = "".join(pieces)
    masked = mask(text)
    rebuilt, at = "", 0
    for span in masked.spans:
        assert at <= span.start < span.end <= len(text)
        rebuilt += text[at : span.start] + placeholder(span)
        at = span.end
    assert rebuilt + text[at:] == masked.text
    assert masked.count == len(masked.spans)
    json.dumps(masked.text).encode()


@given(st.lists(PIECES, max_size=8))
def test_masking_a_masked_text_changes_nothing(pieces: list[str]) -> None:
    once = mask(" ".join(pieces)).text
    assert mask(once).text == once


@given(st.lists(st.sampled_from([s for _, s in SECRETS.values()]), min_size=1, max_size=6))
def test_no_secret_survives_among_others(secrets: list[str]) -> None:
    masked = mask(" and ".join(secrets)).text
    assert not any(secret in masked for secret in secrets)


def test_glued_secrets_are_each_masked() -> None:
    masked = mask("ghp_" + key(36) + "ghp_" + key(36, seed=8))
    assert masked.text == "[REDACTED:github_token][REDACTED:github_token]"


@pytest.mark.parametrize(
    "unit",
    [
        "eyJ", "-----BEGIN PRIVATE KEY-----\n", "://", "://a:b", "sk-", "key=", "token:", "xoxb-",
        "eyJabcdefgh.", "sk-ant-", "SG.", "AKIA", "Bearer ", "PASSWORD=", "a", "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\nVersion: ", "github_pat_", "hf_", "Q~", "sig=%2B", "1//0",
    ],
)  # fmt: skip
def test_repeated_beginnings_cost_linear_work(unit: str) -> None:
    # A quadratic pattern would need minutes for this.
    text = unit * (600_000 // len(unit))
    assert len(mask(text).text) <= 40 * len(text)
