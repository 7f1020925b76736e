"""Messages whose JSON is not an object of their fields: times, quantities, int-or-string, JSON in bytes.

A converter gets the fields of the message and returns what Go writes as JSON. A writer gets that JSON, or None where
there is no value, and returns the message.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, QuantityError
from gangline.schema.protobuf.wire import ProtobufError, block, varint

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Go's zero time, which it writes as null.
_ZERO_TIME_SECONDS = -62135596800


def _decode_time(fields: JSON, micros: int) -> datetime | None:
    seconds = fields.get("seconds", 0)
    if not fields or (seconds == _ZERO_TIME_SECONDS and micros == 0):
        return None
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=micros)
    except OverflowError:
        raise ProtobufError(f"{seconds} seconds since 1970 is not a time of the years 1 to 9999") from None


def _time_json(fields: JSON) -> str | None:
    """A time in whole seconds: the JSON form has no fraction, and Kubernetes drops that of protobuf."""
    moment = _decode_time(fields, 0)
    return moment.isoformat()[:19] + "Z" if moment is not None else None


def _micro_time_json(fields: JSON) -> str | None:
    # Rounds towards zero, as Go does.
    moment = _decode_time(fields, int(fields.get("nanos", 0) / 1000))
    return moment.isoformat(timespec="microseconds")[:26] + "Z" if moment is not None else None


def _quantity_json(fields: JSON) -> str:
    if "string" not in fields:
        return "0"
    try:
        return str(Quantity.parse(fields["string"]))
    except QuantityError as error:
        raise ProtobufError(str(error)) from error


def _int_or_string_json(fields: JSON) -> int | str:
    match fields.get("type", 0):
        case 0:
            number: int = fields.get("intVal", 0)
            return number
        case 1:
            text: str = fields.get("strVal", "")
            return text
        case other:
            raise ProtobufError(f"{other} is not a type of an IntOrString: 0 is a number, 1 is text")


def _raw_json(name: str) -> Callable[[JSON], Any]:
    def parsed(fields: JSON) -> Any:
        if not fields.get(name):
            return None
        try:
            return msgspec.json.decode(fields[name])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtobufError(f"a field that holds JSON does not: {error}") from error

    return parsed


def _schema_or_bool_json(fields: JSON) -> Any:
    return fields["schema"] if "schema" in fields else fields.get("allows", False)


def _schema_or_list_json(many: str) -> Callable[[JSON], Any]:
    return lambda fields: fields.get(many) or fields.get("schema")


_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

JSON_CONVERTERS: Final[Mapping[str, Callable[[JSON], Any]]] = {
    _META + "Time": _time_json,
    _META + "MicroTime": _micro_time_json,
    _META + "FieldsV1": _raw_json("Raw"),
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity_json,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string_json,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _raw_json("raw"),
    "io.k8s.api.authentication.v1.ExtraValue": lambda fields: fields.get("items"),
    "io.k8s.api.authorization.v1.ExtraValue": lambda fields: fields.get("items"),
    "io.k8s.api.certificates.v1.ExtraValue": lambda fields: fields.get("items"),
    _META + "Verbs": lambda fields: fields.get("items"),
    _APIEXTENSIONS + "JSON": _raw_json("raw"),
    _APIEXTENSIONS + "JSONSchemaPropsOrBool": _schema_or_bool_json,
    _APIEXTENSIONS + "JSONSchemaPropsOrArray": _schema_or_list_json("jSONSchemas"),
    _APIEXTENSIONS + "JSONSchemaPropsOrStringArray": _schema_or_list_json("property"),
}
"""The JSON of special messages, by definition."""


# Writers


def _write_time(value: str | None) -> bytes:
    if value is None:
        return b""
    seconds, _ = _seconds_and_micros(value)
    return b"\x08%b\x10\0" % varint(seconds)


def _write_micro_time(value: str | None) -> bytes:
    if value is None:
        return b""
    seconds, micros = _seconds_and_micros(value)
    return b"\x08%b\x10%b" % (varint(seconds), varint(micros * 1000))


def _seconds_and_micros(value: str) -> tuple[int, int]:
    since = datetime.fromisoformat(value) - _EPOCH
    return since.days * 86400 + since.seconds, since.microseconds


def _write_quantity(value: Any) -> bytes:
    try:
        return block(1, b"0" if value is None else str(Quantity.parse(str(value))).encode())
    except QuantityError as error:
        raise ProtobufError(str(error)) from error


def _write_int_or_string(value: str | int | None) -> bytes:
    if isinstance(value, str):
        return b"\x08\1\x10\0" + block(3, value.encode())
    return b"\x08\0\x10%b\x1a\0" % varint(value or 0)


def _write_json(value: Any) -> bytes:
    return b"" if value is None else block(1, msgspec.json.encode(value))


def _write_items(value: Any) -> bytes:
    return b"".join([block(1, item.encode()) for item in value or ()])


SPECIAL_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    _META + "Time": _write_time,
    _META + "MicroTime": _write_micro_time,
    _META + "FieldsV1": _write_json,
    _META + "Verbs": _write_items,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _write_quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _write_int_or_string,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _write_json,
    "io.k8s.api.authentication.v1.ExtraValue": _write_items,
    "io.k8s.api.authorization.v1.ExtraValue": _write_items,
    "io.k8s.api.certificates.v1.ExtraValue": _write_items,
    _APIEXTENSIONS + "JSON": _write_json,
}
"""The messages of special JSON, by definition."""
