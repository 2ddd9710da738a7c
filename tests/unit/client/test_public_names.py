from types import FunctionType

import aquifer_client


def test_the_public_surface_is_this_and_nothing_else() -> None:
    """A name added here is a promise; one taken away breaks somebody."""
    assert sorted(aquifer_client.__all__) == [
        "Broker",
        "ClusterMetadataClient",
        "ClusterSnapshot",
        "ConfigResource",
        "Endpoint",
        "FoundOffset",
        "GrpcRemoteLogMetadataManager",
        "GrpcRemoteStorageManager",
        "NewTopic",
        "Partition",
        "PartitionState",
        "RemoteFetchPlan",
        "RemoteLogManagerClient",
        "RemoteRoleConfig",
        "TaskAction",
        "TaskState",
        "TaskType",
        "Topic",
        "TopicResult",
    ]


def test_every_public_name_is_documented() -> None:
    for name in aquifer_client.__all__:
        value = getattr(aquifer_client, name)
        assert value.__doc__, name
        for member, method in vars(value).items():
            if isinstance(method, FunctionType) and not member.startswith("_"):
                assert method.__doc__, f"{name}.{member}"
