"""The scale subresource. Apart from `gangline.api.core`, because every client needs it, and starts faster without the rest."""

from gangline.api.meta import ApiStruct, Object


class ScaleSpec(ApiStruct, frozen=True):
    replicas: int = 0


class ScaleStatus(ApiStruct, frozen=True):
    replicas: int = 0
    selector: str = ""


class Scale(Object, frozen=True):
    """The body of the scale subresource of any kind (`autoscaling/v1`)."""

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()
