"""Put any datastore behind Rocicorp Zero: the SDK's public names."""
