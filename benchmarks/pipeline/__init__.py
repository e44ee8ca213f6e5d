"""How fast rows are encoded and transactions made durable, without a store or a consumer in the way."""
