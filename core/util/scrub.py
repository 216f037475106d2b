"""Remove secrets from text that is shown, kept or given away: differences, debug logs, support bundles."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

MASK = "***"

# Text in base64 has capital and small letters. A path begins with "/", and a hash has hexadecimal digits only.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/])(?!/)(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?![0-9a-f]+(?![A-Za-z0-9+/=]))"
    r"[A-Za-z0-9+/]{24,}={0,2}"
)

_NAME = (
    r"(?:password|passwd|passphrase|token|secret|credential|psk"
    r"|(?:api|access|private|shared|account|auth|encryption|signing|master)[_-]?key"
    # Not a part of a longer word: bypass, passes.
    r"|(?:(?<![a-z])|(?-i:(?<=[a-z])(?=P)))(?:pass|pwd)(?![a-z]))"
)
_VALUE = r"(\\?[\"'])?(?(2)[^\"'\\\n]*|[^\s\"',;]+)"
_KEPT_BEGIN = rf"\1\2{MASK}"
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----).*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_URL_PASSWORD = re.compile(r"(://[^\s/:@\"']*:)[^\s/@\"']+(?=@)")
_WEBHOOK = re.compile(
    r"(https?://(?:(?:hooks\.(?:slack|zapier)\.com|ntfy\.sh|hc-ping\.com|nosnch\.in|maker\.ifttt\.com"
    r"|[\w-]{1,60}\.webhook\.office\.com)/|api\.telegram\.org/bot"
    r"|[^\s/\"'@]{1,200}/(?:[\w-]{1,60}/){0,3}(?:hooks?|webhooks?|integration)/(?=[\w-]{3,60}(?:/|[\w-]{5}))))[^\s\"'<>)]+"
)
"""URLs that are secrets, since they accept posts without a login; their host stays."""
# Hugging Face, NVIDIA NGC, GitHub, GitLab, Slack, OpenAI and others, AWS; Google, Tailscale, age, Vault, Docker, Groq,
# PyPI, npm, Stripe, SendGrid, DigitalOcean, Replicate; JSON web tokens; password hashes
_ISSUED = re.compile(
    r"\b(?:hf_|nvapi-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|AKIA|ASIA)[A-Za-z0-9_-]{8,}"
    r"|\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|\b(?:AIza|tskey-[a-z]{1,20}-|AGE-SECRET-KEY-|hvs\.|dckr_pat_|pypi-|npm_|gsk_|r8_|dop_v1_|whsec_|xapp-|ya29\.|SG\."
    r"|[sr]k_(?:live|test)_)[A-Za-z0-9]{1,3}-?[A-Za-z0-9]{12,}[A-Za-z0-9_.-]*"
    r"|\$(?:1|2[aby]|5|6|7|y|gy|argon2\w{1,2}|scrypt)\$[^\s:\"']+"
)
# Lengths are bounded: each place of a text may begin a match, and the time would grow with the square of the text.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # A truncated text may lack the end of a key.
    (_PRIVATE_KEY, rf"\1{MASK}"),
    (re.compile(rf"(?i)((?:proxy-)?authorization\\?[\"']?\s*[:=]\s*){_VALUE}(?:[ \t]+[^\s\"',;]+)?"), _KEPT_BEGIN),
    (re.compile(r"(?i)\b(bearer|basic)([ \t]+)[A-Za-z0-9._~+/=-]{8,}"), rf"\1\2{MASK}"),
    (re.compile(rf"(?i)((?<!-)--?[\w-]{{0,60}}{_NAME}[ \t]+){_VALUE}"), _KEPT_BEGIN),
    (re.compile(rf"(?i)({_NAME}[\w.-]{{0,60}}\\?[\"']?\s*[=:]\s*){_VALUE}"), _KEPT_BEGIN),
    (re.compile(rf"(?i)([?&]sig=|(?<![\w-])[\w-]{{0,40}}signature=){_VALUE}"), _KEPT_BEGIN),
    (re.compile(r"(?i)\b((?:set-)?cookie\\?[\"']?[ \t]*:[ \t]*\\?[\"']?)[^\r\n\"'\\]+"), rf"\1{MASK}"),
    # A user's number and group are not a login: docker run --user 1000:1000.
    (re.compile(r"((?<![\w-])(?:-u|--(?:proxy-)?user)[ \t=]+[\"']?[A-Za-z][^\s:\"']{0,60}:)[^\s\"']+"), rf"\1{MASK}"),
    (re.compile(r"\b(sshpass[ \t]+-p[ \t]*)\S+"), rf"\1{MASK}"),
    (_WEBHOOK, rf"\1{MASK}"),
    (_URL_PASSWORD, rf"\1{MASK}"),
    (_ISSUED, MASK),
    # The comment of a public key names its owner, and may be anything.
    (re.compile(r"((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]{1,100} AAAA[A-Za-z0-9+/]+=*)[ \t]+[^\s\"'][^\"'\n]*"), r"\1"),
)
"""Forms of secrets that are not declared, with the part of each that stays."""

_SETTING = r"[\w.-]*(?:pass(?:word|wd|phrase)?|secret|token|credentials?|cred|psk)2?"
_SETTINGS = (
    # A mount option. Of a password nothing is left, commas included: it may hold some.
    re.compile(rf"((?<![\w.-]){_SETTING}=)\S+", re.IGNORECASE),
    re.compile(r"((?<=[\s,])user(?:name)?=)[^\s,]+"),
    # A setting as YAML, JSON and INI files have it.
    re.compile(rf"((?<![\w.-]){_SETTING}(?:[\"']\s*:\s*|\s*:\s+|\s+=\s*)).*\S", re.IGNORECASE),
    re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)"),
)
"""What stands before values in a line of a file that are secrets or lead to one, and the values."""

_SHORTEST = 4
"""Characters of a declared secret that is replaced inside of words, too."""
_declared: set[str] = set()


def declare(secret: str) -> None:
    """Remember a secret of this process: `scrub` removes it from every later text, however it is spelled there."""
    parts = [secret, *(line for line in secret.splitlines() if len(line) > 3)]
    for part in filter(None, parts):
        _declared.update((part, repr(part)[1:-1], json.dumps(part)[1:-1], quote(part, errors="surrogateescape")))


def scrub(text: str) -> str:
    """Return a text without declared secrets, private keys, tokens, and values of what is named like a secret."""
    # The longest first: one secret may be a part of another.
    for secret in sorted(_declared, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    for pattern, kept in _PATTERNS:
        text = pattern.sub(kept, text)
    return text


def has_form_of_secret(text: str) -> bool:
    """Return whether a private key, a password in a URL, or what a service issues as a token is in a text."""
    return any(pattern.search(text) for pattern in (_PRIVATE_KEY, _URL_PASSWORD, _ISSUED))


def count_base64(text: str) -> str:
    """Return a text with contents in base64 replaced by their lengths, wherever they stand in a command."""
    return _BASE64.sub(lambda found: f"({len(found[0])} characters of base64)", text)


def mask_settings(line: str) -> str:
    """Return a line of a file without the values of mount options and settings that are secrets or lead to one."""
    for setting in _SETTINGS:
        line = setting.sub(rf"\1{MASK}", line)
    return line
