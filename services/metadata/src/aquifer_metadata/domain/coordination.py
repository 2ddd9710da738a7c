"""Whether a broker that says that it coordinates a group can be believed.

Brokers find the coordinator themselves, by the brokers that they know to be alive. So it stays who it was as long as its own registration
lasts and no broker has registered since it looked: brokers that went away were not chosen then, and are not now. Nobody needs
to know how it is chosen.
"""

from aquifer_core.errors import ConcurrentUpdateError, ErrorReason, PreconditionError

from aquifer_metadata.domain.cluster import GroupCoordinator


def check_coordinator(said: GroupCoordinator, live_epoch: int | None, newest_epoch: int) -> None:
    """Refuses one that another may have followed.

    Args:
        said: what it says of itself.
        live_epoch: of the broker's registration, None when it has no lease.
        newest_epoch: the highest of all registrations that ever were; each is the version of the cluster metadata that it made.

    Raises:
        PreconditionError: the registration is over (STALE_BROKER_EPOCH).
        ConcurrentUpdateError: brokers have registered since it looked.
    """
    if live_epoch != said.broker_epoch:
        raise PreconditionError(
            f"broker {said.broker_id} does not hold its lease of epoch {said.broker_epoch} any more;"
            " its groups have other coordinators, or begin anew",
            reason=ErrorReason.STALE_BROKER_EPOCH,
            metadata={"brokerId": str(said.broker_id)},
        )
    if newest_epoch > said.cluster_version:
        raise ConcurrentUpdateError(
            f"brokers have registered since version {said.cluster_version} of the cluster, by which broker {said.broker_id}"
            f" coordinates the group; look again at version {newest_epoch}",
            metadata={"clusterVersion": str(newest_epoch)},
        )
