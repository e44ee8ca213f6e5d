"""The exceptions of a replica; each class has a stable code."""


class ReplicaError(Exception):
    """Base class; the message says what happened and what to do."""

    code = "replica"


class UnusableReplica(ReplicaError):
    """The file is no replica, or of another format or app."""

    code = "replica-unusable"


class CannotApply(ReplicaError):
    """A change does not fit the replica; its transaction was neither applied nor acknowledged."""

    code = "replica-cannot-apply"


class ChangesForgotten(ReplicaError):
    """The change log no longer reaches back to the requested version; read the tables again."""

    code = "replica-changes-forgotten"
