"""Client view records: what each client group wants and has, and since which version."""
