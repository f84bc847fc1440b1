"""The columns of the analysis are the fields of the records."""

import msgspec
import pytest
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, MapType, StringType

from anabranch.overlay import records
from anabranch.tools.analytics.schema import KINDS, columns_of, line_schema, required_of


def test_every_kind_of_record_is_known() -> None:
    tags = {
        each.__struct_config__.tag
        for each in vars(records).values()
        if isinstance(each, type) and issubclass(each, records.LogRecord) and each is not records.LogRecord
    }
    assert set(KINDS) == tags >= {"probe", "link", "route", "delivery", "control"}


def test_the_columns_of_a_kind_are_its_fields() -> None:
    for kind, struct in KINDS.items():
        assert list(columns_of(kind)) == [field.name for field in msgspec.structs.fields(struct)]
        assert set(columns_of(kind)) <= set(line_schema().fieldNames())


def test_types_are_those_that_json_brings() -> None:
    probe, route, delivery = columns_of("probe"), columns_of("route"), columns_of("delivery")
    assert (probe["ts"], probe["rtt_us"], probe["loss"]) == (LongType(), LongType(), DoubleType())
    assert (route["path"], route["copies"]) == (ArrayType(StringType()), ArrayType(ArrayType(StringType())))
    assert delivery["late"] == BooleanType()
    assert columns_of("control")["counters"] == MapType(StringType(), LongType())


@pytest.mark.parametrize("name", ["connection", "waited_us", "rtt_us"])
def test_what_may_be_missing_is_not_required(name: str) -> None:
    assert name in columns_of("probe")
    assert name not in required_of("probe")
    assert {"ts", "peer", "epoch", "neighbour", "seq"} <= set(required_of("probe"))
