"""The driver, in interpreters of its own: how it is found, what it takes, what it does not do to whoever calls it."""

import json
import os
import random
import subprocess
import sys
import uuid

import pytest
from oslo_config import cfg
from osprofiler import exc, notifier, opts
from osprofiler.drivers import base

from throughline_osprofiler import _ring

# As services do, and the command line.
opts.set_defaults(cfg.CONF)


def python(source, *arguments, **variables):
    """What a program says, in an interpreter without a socket of an agent."""
    variables = {**os.environ, "TRACEPOINTS_SOCKET": "/nonexistent/rings.sock", **variables}
    done = subprocess.run([sys.executable, *arguments, "-c", source], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_driver_is_there_without_anybody_importing_it():
    found = python("from osprofiler.drivers import base; print(type(base.get_driver('throughline')).__name__)")
    assert found == "Throughline"
    # Nobody who imports the package sees who was in between.
    found = python(
        "import sys, osprofiler.drivers as it, throughline_osprofiler.hook as hook\n"
        "print(type(it.__spec__.loader).__name__, type(it.__loader__).__name__, hook._FINDER in sys.meta_path)"
    )
    assert found == "SourceFileLoader SourceFileLoader False"


def test_the_start_of_an_interpreter_imports_the_hook_and_nothing_else():
    loaded = python("import sys; print(sorted(it for it in sys.modules if 'oslo' in it or 'osprofiler' in it))")
    assert loaded == "['throughline_osprofiler', 'throughline_osprofiler.hook']"


def test_a_driver_that_cannot_be_imported_breaks_nothing():
    source = (
        "import sys, logging; logging.disable()\n"
        "sys.modules['throughline_osprofiler._ring'] = None\n"
        "from osprofiler.drivers import base\n"
        "try: base.get_driver('throughline://')\n"
        "except ValueError as error: print(error)"
    )
    assert python(source) == "Driver not found for connection string: throughline://"


@pytest.mark.parametrize("is_loaded", [False, True])
def test_oslo_config_has_the_driver_be_there_where_pth_files_are_not_read(tmp_path, is_loaded):
    conf = tmp_path / "a.conf"
    conf.write_text("[DEFAULT]\nconfig_source = throughline\n[throughline]\ndriver = throughline\n[profiler]\nenabled = true\n")
    # -S: no .pth file is read.
    source = (
        f"import sys; sys.path += {[it for it in sys.path if 'packages' in it]!r}\n"
        "assert 'throughline_osprofiler.hook' not in sys.modules\n"
        + ("import osprofiler.drivers\n" if is_loaded else "")
        + "from oslo_config import cfg\n"
        f"conf = cfg.ConfigOpts(); conf([], default_config_files=[{str(conf)!r}])\n"
        "from osprofiler import opts, notifier; opts.set_defaults(conf)\n"
        "from osprofiler.drivers import base\n"
        "print(type(base.get_driver('throughline://', conf=conf)).__name__, conf.profiler.enabled)"
    )
    assert python(source, "-S") == "Throughline True"


def test_parameters_are_checked_once_and_never_at_a_notification():
    for wrong in ("sample=2", "sample=x", "sampel=1", "mode=fast", "ring_bytes=many", "read=throughline://", "socket=" + "x" * 200):
        with pytest.raises(ValueError):
            base.get_driver(f"throughline://?{wrong}")
    for right in ("", "?sample=0.5&mode=overwrite&ring_bytes=65536", "host/path?read=redis://127.0.0.1:1/0&socket=/run/x.sock"):
        assert base.get_driver(f"throughline://{right}", context=None, conf=cfg.CONF, func=1).get_name() == "throughline"


def test_a_notification_gives_nothing_and_raises_nothing():
    notify = notifier.create("throughline://?socket=/nonexistent/rings.sock", project="a", service="b", host="c")
    assert notify is not notifier._noop_notifier
    for info in ({}, {"base_id": 5}, {"base_id": "\ud800"}, {"info": object()}, {"x": "y" * (1 << 21)}, None, 7, {"x": b"\xff"}):
        assert notify(info) is None
        assert notify(info, context={}, other=1) is None
    assert notify() is None


def test_who_ends_the_program_is_not_held_up():
    class Ends:
        def __iter__(self):
            raise KeyboardInterrupt

    notify = base.get_driver("throughline://?socket=/nonexistent/rings.sock").notify
    with pytest.raises(KeyboardInterrupt):
        notify({"info": Ends()})


def test_nothing_is_made_before_the_first_notification():
    source = (
        "import os, threading\n"
        "from osprofiler.drivers import base\n"
        "count = lambda: (len(os.listdir('/proc/self/task')), sum('tracepoints' in it for it in open('/proc/self/maps')))\n"
        "driver = base.get_driver('throughline://'); before = count()\n"
        "driver.notify({'base_id': 'x'}); print(*before, *count())"
    )
    assert python(source) == "1 0 2 1"


def test_traces_are_sampled_alike_everywhere_and_evenly():
    chance = random.Random(5)
    hashes = [_ring.hash(str(uuid.UUID(int=chance.getrandbits(128), version=4))) for _ in range(20_000)]
    for ratio in (0.01, 0.25, 0.5, 0.9):
        kept = sum(it < ratio * 2**62 for it in hashes) / len(hashes)
        assert abs(kept - ratio) < 0.02
    assert _ring.hash("bdb9c1f0-0000-4000-8000-0123456789ab") == 0x0123456789AB
    assert _ring.hash("BDB9C1F0-0000-4000-BFFF-FFFFFFFFFFFF") == 2**62 - 1
    others = [_ring.hash(f"req-{number}") for number in range(20_000)]
    assert abs(sum(it < 2**61 for it in others) / len(others) - 0.5) < 0.02


def test_reports_come_from_who_answers_as_redis_does():
    driver = base.get_driver("throughline://")
    for ask in (lambda: driver.get_report("x"), driver.list_traces, driver.list_error_traces):
        with pytest.raises(exc.CommandError, match="read=redis://"):
            ask()


def test_the_command_line_asks_for_reports_too(tmp_path):
    redis = pytest.importorskip("redis")
    path = next((f"{it}/redis-server" for it in os.environ["PATH"].split(":") if os.access(f"{it}/redis-server", os.X_OK)), None)
    if path is None:
        pytest.skip("there is no redis-server")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([path, "--port", str(port), "--save", "", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    try:
        url = f"redis://127.0.0.1:{port}/0"
        client = redis.Redis.from_url(url)
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                assert server.poll() is None
        base_id = "bdb9c1f0-0000-4000-8000-0123456789ab"
        point = "f6e3a0d2-57b3-4b2c-9f7a-4d8f3c0b6a11"
        for name in ("a-start", "a-stop"):
            info = {"name": name, "base_id": base_id, "trace_id": point, "parent_id": base_id}
            info.update(timestamp="2026-01-02T03:04:05.678901", info={"host": "h"})
            base.get_driver(url, project="p", service="s").notify(info)
        asked = base.get_driver(f"throughline://?read={url}", project="p")
        assert asked.get_report(base_id) == base.get_driver(url, project="p").get_report(base_id)
        assert [it["base_id"] for it in asked.list_traces()] == [base_id]
        assert asked.list_error_traces() == []
        shown = subprocess.run(
            [f"{os.path.dirname(sys.executable)}/osprofiler", "trace", "show", "--json", base_id, "--connection-string", "throughline://"],
            capture_output=True, text=True, check=True, env={**os.environ, "THROUGHLINE_OSPROFILER_READ": url},
        )
        assert json.loads(shown.stdout)["children"][0]["trace_id"] == point
    finally:
        server.terminate()
        server.wait()
