"""Where snapshot parts are kept: block files in folders, here or on a remote file system."""
