"""What travels between a change source, a cache and a client.

Pure: no I/O, no clock. Everyone may import `protocol`; it imports nobody in this project.
"""
