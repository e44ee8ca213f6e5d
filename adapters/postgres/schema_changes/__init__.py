"""Schema changes: captured, watched for, versioned, and turned into changes for consumers."""
