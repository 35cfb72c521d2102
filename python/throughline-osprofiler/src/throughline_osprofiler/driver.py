"""The driver for `throughline://`.

Parameters, all of them optional:

    sample=0.1              how many traces are written, from 0 to 1, chosen by base_id: all services of one value agree
    socket=/run/x.sock      where the agent listens; else as TRACEPOINTS_SOCKET says
    ring_bytes=1048576      bytes of notifications for each thread that the agent has not read yet; a notification of an eighth of that
                            fits in
    mode=overwrite          what happens when that is full: the newest is dropped and counted (drop), or the oldest gives way
    read=redis://host/0     where the agent answers as redis does, for `osprofiler trace`; else as THROUGHLINE_OSPROFILER_READ says
"""

import functools
import os
from urllib import parse

from osprofiler import exc
from osprofiler.drivers import base

from throughline_osprofiler import _ring, encode

READ = "THROUGHLINE_OSPROFILER_READ"
# What a request of a service makes is some hundred notifications of 400 bytes.
RING_BYTES = 1 << 20


class Throughline(base.Driver):
    """Notifications go into a ring of the thread's, in shared memory, and reports come from the agent."""

    def __init__(self, connection_str, project=None, service=None, host=None, **kwargs):
        super().__init__(connection_str, project=project, service=service, host=host, **kwargs)
        settings = _settings(connection_str)
        self._read = settings["read"] or os.environ.get(READ)
        self._kwargs = kwargs
        _ring.configure(settings["socket"], settings["ring_bytes"], settings["mode"], service or project)
        # OSProfiler takes this attribute once and calls it for each notification, so that none passes through Python.
        self.notify = _ring.Notifier(
            functools.partial(encode.dumps, project, service), _members(project, service), settings["sample"]
        )

    @classmethod
    def get_name(cls):
        return "throughline"

    def notify(self, info, **kwargs):
        """Writes a notification; see `__init__`, which has another take this one's place."""
        raise AssertionError("the constructor has not run")

    def get_report(self, base_id):
        return self._reader.get_report(base_id)

    def list_traces(self, fields=None):
        return self._reader.list_traces(fields)

    def list_error_traces(self):
        return self._reader.list_error_traces()

    @functools.cached_property
    def _reader(self):
        if not self._read:
            raise exc.CommandError(
                "throughline:// only writes: say where the agent answers as redis does, "
                f"by throughline://?read=redis://HOST:PORT/0 or by the variable {READ}."
            )
        about = {"project": self.project, "service": self.service, "host": self.host}
        return base.get_driver(self._read, **{**self._kwargs, **about})


def _members(project, service):
    """The members behind those of a notification, with the end of the object."""
    return encode.dumps(project, service, {})[1:].encode("ascii")


def _settings(connection_str):
    """The parameters; raises ValueError, which OSProfiler logs once, for one that makes no sense."""
    query = parse.urlparse(connection_str).query
    given = dict(parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    settings = {"sample": "1", "socket": None, "ring_bytes": None, "mode": None, "read": None}
    unknown = given.keys() - settings.keys()
    if unknown:
        raise ValueError(f"throughline:// has no parameter {sorted(unknown)[0]}, but {', '.join(settings)}")
    settings.update(given)
    settings["sample"] = float(settings["sample"])
    if not 0.0 <= settings["sample"] <= 1.0:
        raise ValueError("sample is a number from 0 to 1")
    if settings["mode"] not in (None, "drop", "overwrite"):
        raise ValueError("mode is drop or overwrite")
    if settings["ring_bytes"] is not None:
        settings["ring_bytes"] = int(settings["ring_bytes"])
    elif "TRACEPOINTS_RING_BYTES" not in os.environ:
        settings["ring_bytes"] = RING_BYTES
    if parse.urlparse(settings["read"] or "").scheme == Throughline.get_name():
        raise ValueError("read is where the agent answers as redis does: redis://HOST:PORT/0")
    return settings
