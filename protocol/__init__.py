"""What travels between a change source, a cache and a client.

Pure: no I/O, no clock. Every package may import `protocol`; it imports nothing of this project.
"""
