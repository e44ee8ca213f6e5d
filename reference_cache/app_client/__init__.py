"""HTTP requests to the application on behalf of a client: named queries and mutations."""
