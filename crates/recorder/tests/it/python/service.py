"""A service with OSProfiler: its traces, from several threads, go to a connection string. What is notified, in order, goes to a file as OSProfiler's redis
driver would push it.

Arguments: the connection string, the file, how many traces.
"""

import random
import sys
import threading

from oslo_config import cfg
from oslo_serialization import jsonutils
from osprofiler import notifier, opts, profiler

CONNECTION, FILE, TRACES = sys.argv[1], sys.argv[2], int(sys.argv[3])
opts.set_defaults(cfg.CONF)
store = notifier.create(CONNECTION, project="shop", service="api", host="here", conf=cfg.CONF)
order = threading.Lock()
told = open(FILE, "w")


def both(info):
    # The order in which they are notified is that of the file.
    with order:
        store(info)
        told.write(jsonutils.dumps({**info, "project": "shop", "service": "api"}) + "\n")


def nested(depth):
    with profiler.Trace("rpc" if depth % 2 else "db", info={"function": {"name": "f%d" % depth, "args": "(ä,)"}}):
        if depth:
            nested(depth - 1)
            if random.random() < 0.5:
                nested(depth - 1)


def trace(number):
    profiler.clean()
    profiler.init("SECRET_KEY")
    base_id = profiler.get().get_base_id()
    children = []
    with profiler.Trace("wsgi", info={"request": {"path": "/%d" % number, "query": "", "method": "GET", "scheme": "http"}}):
        nested(2)
        parent = profiler.get().get_id()

        def child():
            profiler.init("SECRET_KEY", base_id=base_id, parent_id=parent)
            nested(2)

        children = [threading.Thread(target=child) for _ in range(2)]
        for it in children:
            it.start()
        for it in children:
            it.join()
    return base_id


notifier.set(both)
random.seed(TRACES)
ids = [trace(number) for number in range(TRACES)]
told.close()
for base_id in ids:
    print("trace", base_id)
print("ready", flush=True)
sys.stdin.readline()
