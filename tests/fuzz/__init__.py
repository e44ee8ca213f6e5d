"""Random input at every door: decoders in process, and the sockets of a running endpoint and cache.

`make fuzz` runs it for `FUZZ_SECONDS` per lane (60) from `FUZZ_SEED` (printed); a short form is part of `make test`.
"""
