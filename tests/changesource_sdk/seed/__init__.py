"""Tests of `changesource_sdk.seed`."""
