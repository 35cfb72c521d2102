"""JSON of what the extension leaves to Python: the same bytes as OSProfiler's own drivers write, and something where they raise."""

import json

from oslo_serialization import jsonutils

# A member that says: some values are not what they were, but their repr.
REPR = "throughline.repr"
# The longest repr, and the deepest containers that are looked into.
MAX_REPR_LEN = 1024
MAX_DEPTH = 32

_KEYS = (str, int, float, type(None))


def dumps(project, service, info):
    """The notification with its project and service, as OSProfiler's redis driver writes it. Raises nothing."""
    try:
        data = info.copy()
        data["project"] = project
        data["service"] = service
        return jsonutils.dumps(data)
    except Exception:
        return _with_repr(project, service, info)


def _with_repr(project, service, info):
    data = _plain(info, ())
    if not isinstance(data, dict):
        data = {"info": data}
    data.update({"project": _plain(project, ()), "service": _plain(service, ()), REPR: True})
    return json.dumps(data)


def _plain(value, around):
    """The value as `json` takes it; `around` has the ids of the containers that it is in."""
    if isinstance(value, (dict, list, tuple)):
        if id(value) in around or len(around) == MAX_DEPTH:
            return _repr(value)
        around = (*around, id(value))
        try:
            if isinstance(value, dict):
                return {_key(key): _plain(item, around) for key, item in list(value.items())}
            return [_plain(item, around) for item in value]
        except Exception:
            return _repr(value)
    try:
        return json.loads(jsonutils.dumps(value))
    except Exception:
        return _repr(value)


def _key(key):
    return key if isinstance(key, _KEYS) else _repr(key)


def _repr(value):
    try:
        return repr(value)[:MAX_REPR_LEN]
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
