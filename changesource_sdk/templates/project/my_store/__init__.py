"""Puts a my_store behind Rocicorp Zero."""

from my_store.adapter import MyStore

__all__ = ["MyStore"]
