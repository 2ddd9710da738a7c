"""Object stores, and the RemoteStorageManagers that are made of them."""
