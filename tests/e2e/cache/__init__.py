"""The reference cache with official clients, compared with the official cache."""
