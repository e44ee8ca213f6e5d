"""Measurements, each with one command; see the folders."""
