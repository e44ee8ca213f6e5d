"""`changesource serve`: the endpoint in this process, the pipeline in a supervised child process."""
