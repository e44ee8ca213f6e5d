"""Serves a log again from one of its past watermarks, to caches that start without a replica."""
