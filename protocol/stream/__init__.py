"""One connection of `/changes/v0/stream`: its request, the order of its messages, its two sides, and a record of it."""

from protocol.stream.order import Problem, Stream, acknowledged_by

__all__ = ["Problem", "Stream", "acknowledged_by"]
