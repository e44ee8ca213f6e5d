"""Query pipelines over the replica: started, advanced, and recorded in the client view records."""
