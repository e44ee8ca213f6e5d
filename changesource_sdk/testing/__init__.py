"""What authors test their adapters with."""
