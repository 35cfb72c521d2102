"""Has the driver be there as soon as OSProfiler's own drivers are: the package's .pth file imports this at the start of the interpreter.

OSProfiler finds drivers among the subclasses of its own class, so ours has to be imported before a connection string is looked
at. Nothing is imported here until OSProfiler is, and nothing that goes wrong reaches who started the interpreter.
"""

import sys

_PACKAGE = "osprofiler.drivers"


class _Loader:
    """Loads the package as its own loader does, and our driver behind it."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        uninstall()
        # Nobody who asks for the package's loader meets this one.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _import_driver()


class _Finder:
    """Asks the others for the package's loader."""

    def __init__(self):
        self._is_asking = False

    def find_spec(self, name, path=None, target=None):
        if name != _PACKAGE or self._is_asking:
            return None
        self._is_asking = True
        try:
            return self._found(name, path, target)
        finally:
            self._is_asking = False

    def _found(self, name, path, target):
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


_FINDER = _Finder()


def install():
    """Once; at once when OSProfiler's drivers are there already."""
    package = sys.modules.get(_PACKAGE)
    if package is not None and not getattr(package.__spec__, "_initializing", False):
        _import_driver()
    elif _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def uninstall():
    """OSProfiler is loaded without our driver from now on."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def _import_driver():
    try:
        import throughline_osprofiler.driver  # noqa: F401
    except Exception as error:
        # OSProfiler goes on without it, and says that there is no such driver when it is asked for one.
        import logging

        logging.getLogger(__name__).warning("no driver for throughline://: %r", error)


try:
    install()
except Exception:
    pass
