"""What authors test their adapters with: the conformance suite, faults, and a cache that keeps the rules."""
