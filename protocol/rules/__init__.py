"""The rules of a legal stream: the checker, and what it checks in a frame alone or against the consumer's replica."""

from protocol.rules.checker import RULES, Checker, Rule, Violation, check

__all__ = ["RULES", "Checker", "Rule", "Violation", "check"]
