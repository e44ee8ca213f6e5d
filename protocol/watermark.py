"""Ordered version strings and their arithmetic.

A watermark names a commit. It is a LexiVersion: the base-36 digits of a number, lower case, preceded by one digit that
is their number less one, so that plain string comparison orders them like the numbers: 35 is `0z`, 36 is `110`. A
watermark may also be two of them joined by a dot, `major.minor`, which sorts between `major` and the next.

Contract: `a < b` on valid watermarks is the order of the stream, everywhere, with no parsing. `00` is the version of an
empty view and therefore not a watermark; the first one is `MIN`.
"""

from protocol.errors import WatermarkError

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
BASE = 36
MAX_INT = BASE**BASE - 1
"""The largest number: 36 digits, since the length digit cannot say more."""

MIN = "01"
"""The smallest watermark of a commit."""

EMPTY = "00"
"""Below every watermark: the version of a view, or the head of a log, in which nothing has happened yet."""


def from_int(major: int, minor: int | None = None) -> str:
    """The LexiVersion of `major`, or of the pair `major.minor`."""
    return _lexi(major) if minor is None else f"{_lexi(major)}.{_lexi(minor)}"


def to_int(watermark: str) -> tuple[int, int | None]:
    """The numbers of a LexiVersion, `00` included; the inverse of `from_int`."""
    major, dot, minor = watermark.partition(".")
    return _number(major, watermark), _number(minor, watermark) if dot else None


def validate(text: str) -> str:
    """Return `text` if it can name a commit; otherwise raise `WatermarkError` with the reason."""
    to_int(text)
    if text <= EMPTY:
        raise WatermarkError(
            f"{text!r} is the version of an empty view, not of a commit", fix=f"start at {MIN!r} or higher"
        )
    return text


def is_valid(text: str) -> bool:
    """Whether `validate` would accept `text`."""
    try:
        validate(text)
    except WatermarkError:
        return False
    return True


def succ(watermark: str) -> str:
    """The next watermark of the same shape: the last number plus one."""
    major, minor = to_int(watermark)
    return from_int(major + 1) if minor is None else from_int(major, minor + 1)


def _lexi(number: int) -> str:
    if not 0 <= number <= MAX_INT:
        raise WatermarkError(f"{number} does not fit a LexiVersion", fix="use an integer from 0 to 36**36 - 1")
    digits = ""
    while number >= BASE:
        number, digit = divmod(number, BASE)
        digits = DIGITS[digit] + digits
    return DIGITS[len(digits)] + DIGITS[number] + digits


def _number(part: str, whole: str) -> int:
    digits = part[1:]
    if not digits or not set(part) <= set(DIGITS):
        raise _not_lexi(whole, "it takes a length digit and at least one digit, of 0-9 and a-z")
    if len(digits) != DIGITS.index(part[0]) + 1:
        raise _not_lexi(whole, f"{part[0]!r} announces {DIGITS.index(part[0]) + 1} digits, {len(digits)} follow")
    if len(digits) > 1 and digits[0] == "0":
        raise _not_lexi(whole, "leading zeros break the order")
    return int(digits, BASE)


def _not_lexi(text: str, reason: str) -> WatermarkError:
    return WatermarkError(
        f"{text!r} is not a LexiVersion: {reason}", fix="make watermarks with protocol.watermark.from_int"
    )
