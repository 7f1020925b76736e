"""Events about gangs."""

from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import PodGroup
from gangline.runtime.events import EventRecorder, EventType
from gangline.scheduler.gangs.gang import GangInfo


class GangEvents:
    """Records Events about PodGroups, and about pods that are a gang of their own."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def record(self, gang: GangInfo, kind: EventType, reason: str, note: str, action: str) -> None:
        """Record an Event on the PodGroup, else on the first pod; nothing if the gang has neither."""
        regarding: Pod | PodGroup | None = gang.pod_group
        if regarding is None and gang.members.by_uid:
            regarding = next(iter(gang.members.by_uid.values())).pod
        if regarding is not None:
            self._recorder.record(regarding, kind, reason, note, action)
