"""A service with OSProfiler and the driver for throughline://, as services have it: threads, and a child that is forked.

The first argument is a folder, which gets a file for each thread: what OSProfiler's redis driver would have pushed, a line for each notification.
"""

import json
import os
import pathlib
import sys
import threading

from oslo_config import cfg
from oslo_serialization import jsonutils
from osprofiler import initializer, notifier, opts, profiler

FOLDER = pathlib.Path(sys.argv[1])
TRACES = 300
LONG = 20_000
ours = None
thread = threading.local()


def say(text):
    # In one piece, whoever else says something.
    os.write(1, f"{text}\n".encode())


def both(info):
    thread.expected.append(jsonutils.dumps({**info, "project": "shop", "service": "api"}))
    assert ours(info) is None


@profiler.trace("call", info={"kind": "recursive"})
def recursive(levels, text):
    return text if levels == 0 else recursive(levels - 1, text + "ä\n")


@profiler.trace("fails")
def fails():
    raise ValueError("no")


def request(number):
    profiler.clean()
    profiler.init("SECRET_KEY", base_id=f"request-{number}" if number % 7 == 0 else None)
    with profiler.Trace("wsgi", info={"request": {"path": f"/{number}", "method": "GET", "scheme": "http"}}):
        recursive(3, "x")
        with profiler.Trace("db", info={"db": {"statement": "SELECT 1", "params": {"odd": {1, number}, "n": number}}}):
            pass
        try:
            fails()
        except ValueError:
            pass


def requests(name, count, *more):
    thread.expected = []
    for number in range(count):
        request(number)
    for act in more:
        act()
    lines = "".join(f"{line}\n" for line in thread.expected)
    assert all(json.loads(line) for line in thread.expected)
    (FOLDER / name).write_text(lines, "ascii")


def long():
    """One that is whole in three pieces, and one that no ring takes."""
    profiler.clean()
    profiler.init("SECRET_KEY")
    with profiler.Trace("long", info={"text": "y" * LONG}):
        pass
    ours({"name": "too-long-start", "base_id": "x", "info": "z" * (1 << 20)})


def main():
    global ours
    conf = cfg.CONF
    opts.set_defaults(conf, enabled=True, connection_string=sys.argv[2], hmac_keys="SECRET_KEY")
    conf([], project="app")
    initializer.init_from_conf(conf, None, "shop", "api", "host")
    ours = notifier.get()
    assert type(ours).__name__ == "Notifier", ours
    notifier.set(both)
    threads = [threading.Thread(target=requests, args=(f"thread-{number}", TRACES)) for number in range(3)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    requests("before", 2)
    go, goes = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go, 1)
        requests("child", 20)
        say("child has written")
        sys.stdin.readline()
        os._exit(0)
    requests("after", 10, long)
    say("parent has written")
    os.write(goes, b"x")
    assert os.waitpid(child, 0) == (child, 0)


main()
