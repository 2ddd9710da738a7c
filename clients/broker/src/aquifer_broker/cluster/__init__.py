"""The broker's view of the cluster and its link to the metadata service."""
