"""What one record says: decoded, matched to a table, or set aside."""
