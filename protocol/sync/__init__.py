"""The sync protocol of clients and caches: messages, errors, handshake, query ASTs, and answers of applications."""
