"""Queries put to work: built from their AST, shared by subscribers, explained."""
