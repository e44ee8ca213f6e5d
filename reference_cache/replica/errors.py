"""What goes wrong with a replica, as errors a program can branch on and a person can act on."""


class ReplicaError(Exception):
    """Base of the errors of a replica: a stable `code`, what happened, and what to do."""

    code = "replica"


class UnusableReplica(ReplicaError):
    """A file that is no replica, one of another format, or one of another app."""

    code = "replica-unusable"


class CannotApply(ReplicaError):
    """A change that does not fit the replica; its transaction was not applied, and was not acknowledged."""

    code = "replica-cannot-apply"


class ChangesForgotten(ReplicaError):
    """The change log no longer reaches back to the version asked for: read the tables anew."""

    code = "replica-changes-forgotten"
