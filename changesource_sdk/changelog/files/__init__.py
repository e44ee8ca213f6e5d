"""Files of the state directory: where they are, who may read them, how they are replaced and locked."""
