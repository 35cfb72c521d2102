"""OSProfiler itself writes random traces to two Redis servers at once and reads them by its command line.

Arguments: the connection strings of both, how many traces, a seed. Says where the answers differ, and in its last line, as JSON, how
many traces, notifications and points there were, what its driver for OTLP makes of points, and signed headers with what they say.
"""
import contextlib
import datetime
import difflib
import io
import itertools
import json
import random
import sys
import threading
import uuid

import webob
from oslo_config import cfg
from osprofiler import initializer, notifier, opts, profiler, web
from osprofiler.cmd import shell
from osprofiler.drivers import base, otlp

SERVERS, TRACES, SEED = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
SERVICES = [("nova", "api"), ("nova", "compute"), ("neutron", "server"), (None, None)]
ODD = ["plain", "", "ä€😀", "quote\" back\\slash", "line\nend\r\0", "\ud800", "x" * 5000]

rng = random.Random(SEED)
lock = threading.Lock()
clock = datetime.datetime(2026, 1, 2, 3, 4, 5)
counts = {"notifications": 0, "starts": 0, "stops": 0, "shown": 0}
spans = []
is_nameless = False


class Broken(Exception):
    pass


def connect(project, service):
    options = {"project": project, "service": service, "host": "node-1", "conf": cfg.CONF}
    return [base.get_driver(server, **options) for server in SERVERS]


class Spans(otlp.OTLP):
    """The driver for OTLP, as far as it names and describes spans."""

    class trace_api:
        class SpanKind:
            SERVER, CLIENT, INTERNAL = "Server", "Client", "Internal"

    def __init__(self):
        pass

    def name(self, info):
        it = info["info"]
        is_known = it.get("request") or it.get("db") or it.get("requests")
        # Of other names it cuts letters.
        return self._name(info) if is_known else info["name"].removesuffix("-start")


def span(info):
    driver = Spans()
    tags = {name: tag for name, tag in driver.create_span_tags(info).items() if tag is not None}
    text = json.dumps([info["trace_id"], driver.name(info), driver._kind(info["name"]), tags], ensure_ascii=False)
    return json.loads(text.replace("\ud800", "\ufffd"))


def notify(drivers):
    """What gives each notification to both, in the same order, with a clock that often stands still."""

    def both(info):
        global clock
        with lock:
            clock += datetime.timedelta(microseconds=rng.choice([0, 0, 3, 40, 400, 1000, 250000]))
            info["timestamp"] = clock.strftime("%Y-%m-%dT%H:%M:%S.%f")
            counts["notifications"] += 1
            counts["starts"] += info["name"].endswith("-start")
            counts["stops"] += info["name"].endswith("-stop")
            if info["name"].endswith("-start"):
                spans.append(span(info))
            # A graph cannot be drawn of a service without a name.
            for driver in rng.choice(drivers[: 3 + is_nameless]):
                driver.notify(info)

    return both


def point():
    request = {"path": "/v2/" + rng.choice(ODD), "query": "a=b", "method": "GET", "scheme": "http"}
    db = {"statement": "SELECT %s FROM t", "params": {"p": [1, 2.5, None, float("nan"), 10**30, rng.choice(ODD)]}}
    call = {"function": {"name": "nova.compute.manager.run", "args": str((1, "a")), "kwargs": rng.choice(ODD)}}
    remote = {"requests": dict(request, hostname="h", port=rng.choice([None, 8774]))}
    return rng.choice([
        ("wsgi", {"request": request}),
        ("db", {"db": db}),
        ("rpc", call),
        ("driver", call),
        ("list_servers", call),
        ("with-dashes-start", {}),
        ("http", remote),
        (rng.choice(ODD) or "x", {}),
    ])


def stop_info():
    return rng.choice([
        None,
        {"db": {"result": "1"}},
        {"function": {"result": rng.choice(ODD)}},
        {"requests": {"status_code": 404}},
        {"etype": "Broken", "message": rng.choice(ODD)},
    ])


def work(depth):
    for _ in range(rng.randint(0, 4) if depth else 0):
        name, info = point()
        match rng.randint(0, 9):
            case 0:
                with contextlib.suppress(Broken), profiler.Trace(name, info=info):
                    work(depth - 1)
                    raise Broken(rng.choice(ODD))
            case 1:
                profiler.start(name, info=info)
                work(depth - 1)
                profiler.stop(info=stop_info())
            case 2:
                profiler.start(name, info=info)
            case _:
                with profiler.Trace(name, info=info):
                    work(depth - 1)


def branch(base_id, parent_id):
    profiler.init("key", base_id=base_id, parent_id=parent_id)
    with profiler.Trace("rpc", info={"function": {"name": "branch"}}):
        work(2)
    profiler.clean()


def trace():
    global is_nameless
    is_nameless = rng.random() < 0.1
    profiler.init("key")
    base_id = profiler.get().get_base_id()
    with profiler.Trace("wsgi", info={"request": {"path": "/", "query": "", "method": "POST", "scheme": "http"}}):
        work(3)
        parent_id = profiler.get().get_id()
        threads = [threading.Thread(target=branch, args=(base_id, parent_id)) for _ in range(rng.choice([0, 0, 2, 4]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    profiler.clean()
    return base_id


def write_as_in_2018(drivers, base_id):
    """A key for each notification; there is one, since Redis gives several in any order."""
    info = {"name": "old-start", "base_id": base_id, "trace_id": str(uuid.UUID(int=7, version=4)), "parent_id": base_id,
            "timestamp": clock.strftime("%Y-%m-%dT%H:%M:%S.%f"), "info": {"host": "h"}, "project": "p", "service": "s"}
    for driver in drivers:
        driver.db.set("osprofiler:" + base_id + info["trace_id"], json.dumps(info))


def said(*arguments):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            status = shell.main(list(arguments))
    except Exception as error:  # whatever it is, it is the same for both
        return f"{error!r} after {out.getvalue()}"
    return f"{status} {out.getvalue()}"


def compare(*arguments, is_sorted=True):
    """Redis gives keys in no order, and the one of ours is that of their age."""
    answers = [said(*arguments, "--connection-string", server) for server in SERVERS]
    if not is_sorted:
        answers = ["\n".join(sorted(answer.splitlines())) for answer in answers]
    if answers[0] != answers[1]:
        lines = difflib.unified_diff(*(answer.splitlines() for answer in answers), "ours", "redis", n=3)
        sys.exit("\n".join([f"differs: {arguments}", *(ascii(line)[:200] for line in itertools.islice(lines, 40))]))
    counts["shown"] += answers[0].startswith("None ")
    return answers[0]


def service():
    """A service that is configured by its file, and is asked to trace a request."""
    cfg.CONF.set_override("enabled", True, "profiler")
    cfg.CONF.set_override("connection_string", SERVERS[0], "profiler")
    cfg.CONF.set_override("hmac_keys", "one, key", "profiler")
    initializer.init_from_conf(cfg.CONF, {}, project="cinder", service="volume", host="node-9")

    def application(environ, start_response):
        with profiler.Trace("inner"):
            pass
        start_response("200 OK", [])
        return [b"done"]

    profiler.init("key")
    base_id = profiler.get().get_base_id()
    request = webob.Request.blank("/volumes?x=y", headers=web.get_trace_id_headers())
    profiler.clean()
    answer = request.get_response(web.WsgiMiddleware(application, enabled=True))
    shown = json.loads(said("trace", "show", base_id, "--json", "--connection-string", SERVERS[0]).partition(" ")[2])
    point = shown["children"][0]
    assert answer.text == "done" and point["info"]["name"] == "wsgi", shown
    assert point["children"][0]["info"]["service"] == "volume", shown


def header(key):
    profiler.init(key)
    with profiler.Trace("x"):
        headers, it = web.get_trace_id_headers(), profiler.get()
        ids = [uuid.UUID(text).hex for text in (it.get_base_id(), it.get_id())]
    profiler.clean()
    info = headers["X-Trace-Info"]
    return [info if isinstance(info, str) else info.decode(), headers["X-Trace-HMAC"], key, *ids]


opts.set_defaults(cfg.CONF)
cfg.CONF.set_override("filter_error_trace", True, "profiler")
drivers = [connect(*names) for names in SERVICES]
compare("trace", "list")
notifier.set(notify(drivers))
ids = [trace() for _ in range(TRACES)]
for base_id in ids[::7]:
    write_as_in_2018(drivers[0], base_id)
for base_id in [*ids, str(uuid.UUID(int=1, version=4))]:
    for form in (["--json"], ["--html"], ["--html", "--local-libs"], ["--dot"], []):
        compare("trace", "show", base_id, *form)
listed = compare("trace", "list", is_sorted=False)
assert all(base_id in listed for base_id in ids)
errors = compare("trace", "list", "--error-trace", "yes", is_sorted=False)
notifier.set(lambda info: None)
headers = [header(key) for key in ("SECRET_KEY", "one", "ключ")]
service()
counts["errors"] = sum(base_id in errors for base_id in ids)
print(json.dumps({"traces": len(ids), "bytes": len(listed), "headers": headers, "spans": spans, **counts}))
