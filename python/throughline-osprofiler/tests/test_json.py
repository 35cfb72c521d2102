"""The JSON is what OSProfiler's redis driver would have pushed, byte for byte."""

import collections
import datetime
import decimal
import enum
import ipaddress
import itertools
import json
import math
import random
import uuid

import pytest
from oslo_serialization import jsonutils

from throughline_osprofiler import _ring, driver, encode

MEMBERS = driver._members("shop", None)


def upstream(info):
    data = info.copy()
    data["project"] = "shop"
    data["service"] = None
    return jsonutils.dumps(data)


def ours(info):
    """As the driver makes it, and whether the extension did."""
    fast = _ring.dumps(info, MEMBERS)
    return (fast.decode("ascii"), True) if fast is not None else (encode.dumps("shop", None, info), False)


class Text(str):
    def __str__(self):
        return "not this"


class Number(int):
    def __repr__(self):
        return "not this"


class Real(float):
    def __repr__(self):
        return "not this"


class Colour(enum.IntEnum):
    RED = 3


class List(list):
    def __iter__(self):
        return iter([7])


def some_text(chance):
    alphabets = ["abc xyz-_/.:'", '"\\\n\r\t\b\f\0\x1f\x7f~ ', "äöü€\u2028\ud800", "a\U0001f600\U0010ffff"]
    letters = alphabets[0] if chance.random() < 0.5 else chance.choice(alphabets)
    return "".join(chance.choice(letters) for _ in range(chance.choice([0, 1, 3, 7, 8, 9, 16, 40, 300])))


PLAIN = [
    some_text,
    lambda chance: chance.choice([None, True, False]),
    lambda chance: chance.randrange(-(10**6), 10**6),
    lambda chance: chance.choice([0, -1, 2**31, 2**63 - 1, -(2**63), Number(5), Colour.RED]),
    lambda chance: chance.uniform(-1e3, 1e3) * 10.0 ** chance.randrange(-30, 30),
    lambda chance: chance.choice([0.0, -0.0, 1e16, 1e-7, 123456789.0, math.inf, -math.inf, math.nan, Real(0.5)]),
    lambda chance: Text(some_text(chance)),
]
ODD = [
    lambda chance: chance.choice([2**63, -(2**63) - 1, 10**40]),
    lambda chance: datetime.datetime(2026, 1, 2, 3, 4, 5, chance.randrange(10**6)),
    lambda chance: datetime.date(2026, 1, 2),
    lambda chance: uuid.UUID(int=chance.getrandbits(128)),
    lambda chance: ipaddress.ip_address(chance.getrandbits(32)),
    lambda chance: decimal.Decimal(chance.randrange(1000)) / 8,
    lambda chance: some_text(chance).encode("utf-8", "replace"),
    lambda chance: ValueError(some_text(chance)),
    lambda chance: {chance.randrange(3)},
    lambda chance: frozenset([1]),
    lambda chance: iter([1, "a"]) if chance.random() < 0.5 else range(3),
    lambda chance: collections.OrderedDict([("b", 1), ("a", some_text(chance))]),
    lambda chance: {chance.choice([1, 2.5, True, None, 2**70]): 1},
    lambda chance: List([1, 2]),
    lambda chance: collections.namedtuple("Pair", "a b")(1, "x"),
    lambda chance: chance.choice([len, int, json, itertools.count]),
]


def some_value(chance, kinds, depth):
    if depth > 0 and chance.random() < 0.3:
        items = [some_value(chance, kinds, depth - 1) for _ in range(chance.randrange(4))]
        return chance.choice([list, tuple, lambda it: {some_text(chance): item for item in it}])(items)
    return chance.choice(kinds)(chance)


def some_info(chance, kinds):
    info = {
        "name": chance.choice(["wsgi-start", "db-stop", some_text(chance)]),
        "base_id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "trace_id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "timestamp": "2026-01-02T03:04:05.678901",
        "info": {some_text(chance): some_value(chance, kinds, 4) for _ in range(4)},
    }
    if chance.random() < 0.05:
        info.update({chance.choice(["project", "service", ""]): some_text(chance)})
    return info


def test_thousands_of_plain_payloads_are_the_same_bytes_without_python():
    chance = random.Random(1)
    for _ in range(4000):
        info = some_info(chance, PLAIN)
        text, is_fast = ours(info)
        assert text == upstream(info)
        assert is_fast or "project" in info or "service" in info


def test_thousands_of_odd_payloads_are_the_same_bytes():
    slow = raised = 0
    for seed in range(4000):
        info, again = (some_info(random.Random(seed), PLAIN + ODD) for _ in range(2))
        text, is_fast = ours(info)
        slow += not is_fast
        try:
            expected = upstream(again)
        except ValueError:
            # Some versions take no decimals.
            raised += 1
            assert json.loads(text)["throughline.repr"] is True
            continue
        assert text == expected
    assert 1000 < slow < 4000 and raised < slow / 2


def test_an_empty_payload_and_one_whose_keys_are_ours():
    for info in ({}, {"a": 1}, {"project": 1, "z": 2}, {"service": "x"}, collections.OrderedDict(a=1)):
        assert ours(info)[0] == upstream(info)


def test_every_character_is_escaped_alike():
    for begin in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, range(begin, begin + 0x1000)))
        assert ours({"t": text})[0] == upstream({"t": text})
    for code in range(128):
        for before in range(9):
            text = "x" * before + chr(code) + "y" * (8 - before)
            assert ours({"t": text})[0] == upstream({"t": text})


class Plain:
    pass


class Hostile:
    def __repr__(self):
        raise RuntimeError("no")


def cycle():
    found = {"a": 1}
    found["me"] = found
    return found


def deep(levels):
    found = 0
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    "value, expected",
    [
        (b"\xff", repr(b"\xff")),
        ({"x": [1, b"\xfe"]}, {"x": [1, repr(b"\xfe")]}),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        (Hostile(), "<Hostile, whose repr raises RuntimeError>"),
    ],
)
def test_what_upstream_raises_for_is_there_as_its_repr_and_flagged(value, expected):
    info = {"name": "a", "info": value}
    with pytest.raises(Exception):
        upstream(info)
    text, is_fast = ours(info)
    assert not is_fast
    expected = {"name": "a", "info": expected, "project": "shop", "service": None, "throughline.repr": True}
    assert text == json.dumps(expected)


def test_objects_cycles_and_depths_are_reprs_of_some_length():
    for value in (Plain(), cycle(), deep(200_000), {"x": Plain()}, [cycle()]):
        info = {"name": "a", "info": value}
        with pytest.raises((ValueError, RecursionError)):
            upstream(info)
        found = json.loads(ours(info)[0])
        assert found["throughline.repr"] is True and found["name"] == "a"
    assert len(ours({"name": [Plain()] * 3 + [{"x": "y" * 5000}, Plain()]})[0]) > 5000
    assert json.loads(ours({"deep": deep(60)})[0])["deep"] == deep(60)
    assert json.loads(ours("no dictionary")[0])["throughline.repr"] is True


def test_a_payload_that_no_record_takes_is_not_made_by_the_extension():
    assert _ring.dumps({"t": "x" * (1 << 20)}, MEMBERS) is None
    assert _ring.dumps({"t": "ä" * (1 << 18)}, MEMBERS) is None
    assert len(_ring.dumps({"t": "x" * (1 << 18)}, MEMBERS)) > 1 << 18
