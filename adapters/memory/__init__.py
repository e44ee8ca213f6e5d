"""The smallest adapter: tables held in a Python process, for the tutorial and for tests."""

from adapters.memory.adapter import MemoryAdapter, MemoryStore

__all__ = ["MemoryAdapter", "MemoryStore"]
