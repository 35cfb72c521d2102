"""Builds the extension, with the header of crate tracepoint, and puts the .pth file beside the package."""

import pathlib
import shutil

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
HEADER = pathlib.PurePath("throughline", "tracepoint.h")
PTH = "throughline_osprofiler.pth"


def include():
    """Where the header is: in the repository, or as an sdist has it."""
    for folder in (HERE / "include", HERE.parent.parent / "crates" / "tracepoint" / "include"):
        if (folder / HEADER).is_file():
            return folder
    raise SystemExit(f"{HEADER} is neither in the repository nor in include/")


class BuildPy(build_py):
    def run(self):
        super().run()
        self.copy_file(str(HERE / PTH), str(pathlib.Path(self.build_lib) / PTH), preserve_mode=False)

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), str(pathlib.Path(self.build_lib) / PTH)]


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        to = pathlib.Path(base_dir) / "include" / HEADER
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(include() / HEADER, to)


setup(
    ext_modules=[
        Extension(
            "throughline_osprofiler._ring",
            ["src/throughline_osprofiler/_ring.c"],
            include_dirs=[str(include())],
            depends=[str(include() / HEADER)],
            extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"],
            # Call sites and a thread are in it.
            extra_link_args=["-pthread", "-Wl,-z,nodelete"],
        )
    ],
    cmdclass={"build_py": BuildPy, "sdist": Sdist},
)
