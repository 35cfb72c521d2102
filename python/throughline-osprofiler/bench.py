"""What a notification costs, of this driver and of OSProfiler's own, in turns and against the notifier that does nothing.

    python bench.py [ROUNDS]

redis-server is started where there is one on the path; the OTLP driver needs opentelemetry-sdk and opentelemetry-exporter-otlp, and gets a collector that answers and
forgets. Nobody reads the rings: `ours` overwrites, so that each notification is written. Ratios and medians are of the same rounds.
"""

import contextlib
import http.server
import logging
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from oslo_config import cfg
from osprofiler import notifier, opts, profiler
from osprofiler.drivers import base

PAYLOAD = {
    "name": "wsgi-start",
    "base_id": "7253ca8c-33b3-4f84-b4f1-f5a4311ddfa4",
    "trace_id": "f6e3a0d2-57b3-4b2c-9f7a-4d8f3c0b6a11",
    "parent_id": "7253ca8c-33b3-4f84-b4f1-f5a4311ddfa4",
    "timestamp": "2026-01-02T03:04:05.678901",
    "info": {
        "request": {"path": "/v2.1/servers/detail", "query": "limit=20&sort=name", "method": "GET", "scheme": "http"},
        "host": "compute-17.example.org",
    },
}


@contextlib.contextmanager
def redis_server():
    program = shutil.which("redis-server")
    if not program:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [program, "--port", str(port), "--save", "", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    if server.poll() is not None:
                        raise
            try:
                yield f"redis://127.0.0.1:{port}/0"
            finally:
                server.terminate()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def collector():
    """Answers whatever it is sent."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"otlp://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def notifiers(redis_url, otlp_url):
    found = {"no-op": notifier._noop_notifier}
    urls = {"ours": "throughline://?mode=overwrite&socket=/nonexistent/rings.sock", "redis": redis_url, "otlp": otlp_url}
    for name, url in urls.items():
        try:
            if url is not None:
                found[name] = base.get_driver(url, project="nova", service="api", host="h", conf=cfg.CONF).notify
                continue
        except Exception as error:
            print(f"{name}: not to be had: {error}", file=sys.stderr)
            continue
        print(f"{name}: not to be had", file=sys.stderr)
    return found


def notify(count):
    """By OSProfiler's own function, as its profiler does; starts and stops in turns, which the OTLP driver wants."""
    stop = {**PAYLOAD, "name": "wsgi-stop", "info": {"host": "compute-17.example.org"}}
    send = notifier.notify
    begin = time.perf_counter_ns()
    for _ in range(count // 2):
        send(PAYLOAD)
        send(stop)
    return (time.perf_counter_ns() - begin) / (count // 2 * 2)


def starts(count):
    """Payloads with a request only."""
    send = notifier.notify
    begin = time.perf_counter_ns()
    for _ in range(count):
        send(PAYLOAD)
    return (time.perf_counter_ns() - begin) / count


def trace(count):
    """A whole point: its start, its stop, ids and times."""
    profiler.clean()
    profiler.init("key")
    begin = time.perf_counter_ns()
    for _ in range(count):
        profiler.start("wsgi", {"request": dict(PAYLOAD["info"]["request"])})
        profiler.stop()
    return (time.perf_counter_ns() - begin) / count


def run(what, found, counts, rounds):
    nanos = {name: [] for name in found}
    for number in range(rounds):
        order = list(found)
        # Each is first as often as the others are.
        for name in order[number % len(order):] + order[: number % len(order)]:
            notifier.set(found[name])
            nanos[name].append(what(counts.get(name, counts["no-op"])))
    print(f"{what.__name__}: {(what.__doc__ or '').strip().splitlines()[0]}")
    for name, those in nanos.items():
        added = statistics.median(one - none for one, none in zip(those, nanos["no-op"]))
        ratio = statistics.median(one / none for one, none in zip(those, nanos["no-op"]))
        print(f"  {name:6} {statistics.median(those):10.0f} ns ({min(those):.0f} to {max(those):.0f})  {added:+10.0f} ns  {ratio:8.2f} x no-op")
    for name in found:
        if name not in ("no-op", "ours"):
            ratio = statistics.median(one / ours for one, ours in zip(nanos[name], nanos["ours"]))
            print(f"  {name} / ours: {ratio:.0f}")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    opts.set_defaults(cfg.CONF)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    with redis_server() as redis_url, collector() as otlp_url:
        found = notifiers(redis_url, otlp_url)
        from oslo_serialization import jsonutils

        length = len(jsonutils.dumps({**PAYLOAD, "project": "nova", "service": "api"}))
        print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors, {rounds} rounds, {length} bytes of JSON")
        few = {"no-op": 100_000, "ours": 100_000, "redis": 300, "otlp": 300}
        without_otlp = {name: it for name, it in found.items() if name != "otlp"}
        run(starts, without_otlp, few, rounds)
        run(notify, found, few, rounds)
        run(trace, found, {"no-op": 10_000, "ours": 10_000, "redis": 150, "otlp": 150}, rounds)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # What the OTLP driver has not sent yet is not waited for.
    os._exit(0)
