"""Stores: transactions in which mutators write, together with the confirmation of their mutation."""
