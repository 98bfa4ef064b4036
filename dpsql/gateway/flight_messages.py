"""Messages of Arrow Flight and Flight SQL that the gateway reads and writes.

The module describes the messages and makes their classes at run time, in a separate pool. So it needs no compiler and
no version of generated code, and another package with the same messages does not clash. Enumerations are integers and
maps are lists of key and value: the bytes are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError

from dpsql.errors import GatewayError

_PACKAGE = "arrow.flight.protocol"
SQL_PACKAGE = f"{_PACKAGE}.sql"
# Each field as name:type=number; ? marks an optional field, * a list.
_FLIGHT = {
    "HandshakeRequest": "protocol_version:uint64=1 payload:bytes=2",
    "HandshakeResponse": "protocol_version:uint64=1 payload:bytes=2",
    "ActionType": "type:string=1 description:string=2",
    "Action": "type:string=1 body:bytes=2",
    "Result": "body:bytes=1",
    "SchemaResult": "schema:bytes=1",
    "FlightDescriptor": "type:int32=1 cmd:bytes=2 path:string*=3",
    "Ticket": "ticket:bytes=1",
    "FlightEndpoint": "ticket:Ticket=1",
    "FlightInfo": (
        "schema:bytes=1 flight_descriptor:FlightDescriptor=2 endpoint:FlightEndpoint*=3 total_records:int64=4 "
        "total_bytes:int64=5 ordered:bool=6 app_metadata:bytes=7"
    ),
    "FlightData": "flight_descriptor:FlightDescriptor=1 data_header:bytes=2 app_metadata:bytes=3 data_body:bytes=1000",
    "PutResult": "app_metadata:bytes=1",
    "CancelFlightInfoRequest": "info:FlightInfo=1",
    "CancelFlightInfoResult": "status:int32=1",
    "SessionOptionValue": (
        "string_value:string?=1 bool_value:bool?=2 int64_value:sfixed64?=3 double_value:double?=4 "
        "string_list_value:StringList?=5"
    ),
    "StringList": "values:string*=1",
    "SessionOption": "key:string=1 value:SessionOptionValue=2",
    "SetSessionOptionsRequest": "session_options:SessionOption*=1",
    "SessionError": "value:int32=1",
    "SessionErrorOf": "key:string=1 value:SessionError=2",
    "SetSessionOptionsResult": "errors:SessionErrorOf*=1",
    "GetSessionOptionsResult": "session_options:SessionOption*=1",
    "CloseSessionResult": "status:int32=1",
}
_KEYS = "catalog:string?=1 db_schema:string?=2 table:string=3"
_SQL = {
    "CommandGetSqlInfo": "info:uint32*=1",
    "CommandGetXdbcTypeInfo": "data_type:int32?=1",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog:string?=1 db_schema_filter_pattern:string?=2",
    "CommandGetTables": (
        "catalog:string?=1 db_schema_filter_pattern:string?=2 table_name_filter_pattern:string?=3 "
        "table_types:string*=4 include_schema:bool=5"
    ),
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": (
        "pk_catalog:string?=1 pk_db_schema:string?=2 pk_table:string=3 fk_catalog:string?=4 fk_db_schema:string?=5 "
        "fk_table:string=6"
    ),
    "CommandStatementQuery": "query:string=1 transaction_id:bytes?=2",
    "CommandPreparedStatementQuery": "prepared_statement_handle:bytes=1",
    "TicketStatementQuery": "statement_handle:bytes=1",
    "ActionCreatePreparedStatementRequest": "query:string=1 transaction_id:bytes?=2",
    "ActionCreatePreparedStatementResult": (
        "prepared_statement_handle:bytes=1 dataset_schema:bytes=2 parameter_schema:bytes=3 is_update:bool?=4"
    ),
    "ActionClosePreparedStatementRequest": "prepared_statement_handle:bytes=1",
    "DoPutPreparedStatementResult": "prepared_statement_handle:bytes?=1",
    "ActionCancelQueryRequest": "info:bytes=1",
    "ActionCancelQueryResult": "result:int32=1",
}
_FIELD = re.compile(r"(\w+):(\w+)([?*]?)=(\d+)")
_TYPES = {name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}") for name in (
    "bytes", "string", "bool", "uint32", "uint64", "int32", "int64", "sfixed64", "double"
)}  # fmt: skip


def _described(package: str, messages: Mapping[str, str]) -> bytes:
    """Return a serialized file descriptor."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, kind, mark, number in _FIELD.findall(fields):
            descriptor = message.field.add(name=field, number=int(number))
            descriptor.label = kinds.LABEL_REPEATED if mark == "*" else kinds.LABEL_OPTIONAL
            descriptor.type = _TYPES.get(kind, kinds.TYPE_MESSAGE)
            if kind not in _TYPES:
                descriptor.type_name = f".{package}.{kind}"
            if mark == "?":
                descriptor.oneof_index, descriptor.proto3_optional = len(message.oneof_decl), True
                message.oneof_decl.add(name=f"_{field}")
    description: bytes = file.SerializeToString()
    return description


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    classes = {}
    for package, messages in ((_PACKAGE, _FLIGHT), (SQL_PACKAGE, _SQL)):
        pool.AddSerializedFile(_described(package, messages))
        for name in messages:
            classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
    return classes


_CLASSES = _classes()


def new(kind: str, **fields: object) -> Any:
    """Return a message of a kind, such as ``FlightInfo``."""
    return _CLASSES[kind](**fields)


def read(kind: str, data: bytes) -> Any:
    """Return the message in some bytes.

    Raises
    ------
    GatewayError
        G021: no message.
    """
    try:
        return _CLASSES[kind].FromString(data)
    except (DecodeError, UnicodeDecodeError):
        raise GatewayError("G021", "a message is not read. Ask with a driver of Arrow Flight SQL.") from None


def packed(message: Any) -> bytes:
    """Return a message with its name."""
    url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    envelope: bytes = Packed(type_url=url, value=message.SerializeToString()).SerializeToString()
    return envelope


def unpacked(data: bytes) -> tuple[str, Any]:
    """Return the name of a Flight SQL message, and the message; None if the gateway does not know it.

    Raises
    ------
    GatewayError
        G021: no such message.
    """
    try:
        envelope = Packed.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        raise GatewayError("G021", "a command is not read. Ask with a driver of Arrow Flight SQL.") from None
    package, _, name = envelope.type_url.rpartition("/")[2].rpartition(".")
    if package != SQL_PACKAGE:
        raise GatewayError("G021", "a command is none of Flight SQL. Ask with a driver of Arrow Flight SQL.")
    return name, read(name, envelope.value) if name in _SQL else None
