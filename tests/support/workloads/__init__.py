"""What is written to upstreams: tables, histories, random sessions."""
