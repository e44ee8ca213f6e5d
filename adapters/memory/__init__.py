"""The smallest adapter: tables held in a Python process, for the tutorial and for tests."""

from adapters.memory.adapter import MemoryAdapter
from adapters.memory.store import MemoryStore

__all__ = ["MemoryAdapter", "MemoryStore"]
