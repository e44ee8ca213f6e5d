"""The log survives kills, damage and full disks."""
