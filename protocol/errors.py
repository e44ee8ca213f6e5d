"""What goes wrong on the wire, as errors a program can branch on and a person can act on.

Every error of `protocol` is a `ProtocolError`: a stable `code`, what happened, `where` it happened (a field path, a
query parameter, a frame) and, where one is known, the `fix`.
"""


class ProtocolError(ValueError):
    """Something that the protocol does not allow; nothing was sent, stored or changed because of it."""

    code = "protocol"

    def __init__(self, message: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(message, where, fix)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.fix})" if self.fix else text


class WatermarkError(ProtocolError):
    """A text that is no watermark, or a number that cannot be one."""

    code = "watermark"


class FramingError(ProtocolError):
    """Bytes that are not a sequence of whole frames."""

    code = "framing"


class CodecError(ProtocolError):
    """A message that cannot be written or read; `where` is the path of the field."""

    code = "codec"


class HandshakeError(ProtocolError):
    """A request that cannot be served; answer it with `status` before any other work."""

    code = "handshake"

    def __init__(self, message: str, *, where: str = "", fix: str = "", status: int = 400) -> None:
        super().__init__(message, where=where, fix=fix)
        self.status = status


class SessionError(ProtocolError):
    """A message that is not allowed at this point of the stream: it breaks `rule`, and the connection must end."""

    code = "session"

    def __init__(self, message: str, *, where: str = "", fix: str = "", rule: str) -> None:
        super().__init__(message, where=where, fix=fix)
        self.rule = rule
