"""The former import path of `reference_cache.zql.query.expression`."""

from reference_cache.zql.query.expression import and_, cmp, exists, not_, or_

__all__ = ["and_", "cmp", "exists", "not_", "or_"]
