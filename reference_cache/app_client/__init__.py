"""Speaking to the application on a client's behalf: named queries and mutations over HTTP."""
