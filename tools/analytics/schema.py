"""The records of `overlay/records.py` as Spark columns: names, types, and which may not be missing.

Made from the structs themselves, so that a field added there is a column here.
"""

import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from anabranch.overlay import records
from anabranch.overlay.records import LogRecord

CORRUPT = "_corrupt"
"""The text of a line that could not be read."""

_PLAIN: dict[Any, DataType] = {
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    bool: BooleanType(),
}


def _structs() -> dict[str, type[LogRecord]]:
    found = {}
    for value in vars(records).values():
        if isinstance(value, type) and issubclass(value, LogRecord) and value is not LogRecord:
            found[str(value.__struct_config__.tag)] = value
    return found


KINDS = _structs()
"""What a line may be, by its `kind`."""


def column_type(annotation: Any) -> DataType:
    """The Spark type of a field."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        (plain,) = (each for each in inner if each is not type(None))
        return column_type(plain)
    if origin in (list, tuple):
        return ArrayType(column_type(inner[0]))
    if origin is dict:
        return MapType(column_type(inner[0]), column_type(inner[1]))
    return _PLAIN[annotation]


def columns_of(kind: str) -> dict[str, DataType]:
    """The columns of one kind of record, in the order of its fields, `kind` left out."""
    hints = get_type_hints(KINDS[kind])
    return {field.name: column_type(hints[field.name]) for field in msgspec.structs.fields(KINDS[kind])}


def required_of(kind: str) -> list[str]:
    """Columns without which a record of this kind says nothing. Fields with defaults came later."""
    hints = get_type_hints(KINDS[kind])
    return [
        field.name
        for field in msgspec.structs.fields(KINDS[kind])
        if field.required and type(None) not in get_args(hints[field.name])
    ]


def line_schema() -> StructType:
    """Every column of every kind, once; what a line of a log may hold."""
    columns: dict[str, DataType] = {"kind": StringType()}
    for kind in KINDS:
        for name, column in columns_of(kind).items():
            known = columns.setdefault(name, column)
            assert known == column, f"{name} has two types"
    return StructType([StructField(name, column) for name, column in columns.items()])
