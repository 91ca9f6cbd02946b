"""`tf.DeviceSpec`: the parts of a device's name."""

from typing import Any, final

_PARTS = ("job", "replica", "task", "device_type", "device_index")


@final
class DeviceSpec:
    """Drop-in for `tf.DeviceSpec`: job, replica, task, type and index of a device, each of which may be left open.

    Ref: https://www.tensorflow.org/api_docs/python/tf/DeviceSpec
    """

    __slots__ = ("_device_index", "_device_type", "_job", "_replica", "_task")

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        """Name a device by the parts that are given."""
        whole = lambda number: None if number is None else int(number)
        self._job = None if job is None else str(job)
        self._replica, self._task, self._device_index = whole(replica), whole(task), whole(device_index)
        self._device_type = str(device_type).upper() if device_type in ("cpu", "gpu") else device_type

    @classmethod
    def from_string(cls, spec: str | None) -> "DeviceSpec":
        """Take a name such as "/job:worker/task:1/device:GPU:0" apart; "*" is an open index.

        Raises:
            ValueError: If it is no device's name.
        """
        found: dict[str, Any] = {}
        for part in filter(None, (spec or "").split("/")):
            key, *values = part.split(":")
            if key in ("job", "replica", "task") and len(values) == 1:
                found[key] = values[0]
                continue
            kind = _device_of(key, values)
            if kind is None:
                raise ValueError(f"Unknown attribute '{key}' is encountered while parsing the device spec: '{spec}'.")
            if "device_type" in found:
                raise ValueError(f"Multiple device types are not allowed while parsing the device spec: {spec}.")
            found["device_type"], found["device_index"] = kind
        return cls(**{key: None if value == "*" else value for key, value in found.items()})

    def parse_from_string(self, spec: str) -> "DeviceSpec":
        """Do as `from_string`."""
        return self.from_string(spec)

    def to_string(self) -> str:
        """Return the name."""
        parts = [
            f"/{name}:{value}" for name in ("job", "replica", "task") if (value := getattr(self, name)) is not None
        ]
        if self.device_type is not None:
            parts.append(f"/device:{self.device_type}:{'*' if self.device_index is None else self.device_index}")
        return "".join(parts)

    def make_merged_spec(self, dev: "DeviceSpec") -> "DeviceSpec":
        """Return the device with the parts that `dev` has, and otherwise this one's."""
        given = {name: getattr(dev, name) for name in _PARTS}
        return DeviceSpec(**{name: getattr(self, name) if part is None else part for name, part in given.items()})

    def replace(self, **kwargs: Any) -> "DeviceSpec":
        """Return the device with other parts in place of some."""
        return DeviceSpec(**({name: getattr(self, name) for name in _PARTS} | kwargs))

    @property
    def job(self) -> str | None:
        """The job, such as "worker"."""
        return self._job

    @property
    def replica(self) -> int | None:
        """The number of the copy of the cluster, which is 0."""
        return self._replica

    @property
    def task(self) -> int | None:
        """The process's index in the job."""
        return self._task

    @property
    def device_type(self) -> str | None:
        """The type, such as "GPU"."""
        return self._device_type

    @property
    def device_index(self) -> int | None:
        """The index among the process's devices of the type."""
        return self._device_index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        return hash(self.to_string())

    def __repr__(self) -> str:
        return f"<DeviceSpec({', '.join(f'{name}={getattr(self, name)}' for name in _PARTS)})>"


def _device_of(key: str, values: list[str]) -> tuple[str, str | None] | None:
    """Return the type and the index in a part of a name, such as "device:GPU:0" or "gpu"; None if it has none."""
    if key == "device" and len(values) == 2:
        return values[0], values[1]
    if key.lower() in ("cpu", "gpu") and len(values) <= 1:
        return key.upper(), values[0] if values else None
    return None
