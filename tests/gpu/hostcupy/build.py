"""Builds hostcupy: CuPy's own wheel, with the CUDA libraries under it replaced by libraries for the CPU.

    python tests/gpu/hostcupy/build.py [FOLDER]      default: build/hostcupy; needs g++, nm and pip

`requirements.txt` pins what is installed into FOLDER; nothing outside of FOLDER changes. Three of CuPy's extension
modules contain NVIDIA's static runtime, so they are compiled again from CuPy's source distribution.
A step whose result exists is skipped: after an interruption, run it again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE / "native"
ROOT = HERE.parent.parent.parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

# CuPy's modules that contain the static CUDA runtime and are used, and what takes the place of their CUDA sources.
MODULES = {
    "cupy_backends.cuda.api.runtime": (),
    "cupy.cuda.thrust": ("thrust.cpp",),
    "cupy.cuda.cub": ("cub.cpp",),
}
# Library, its source, and the CuPy module that lists the functions it must have.
LIBRARIES = (
    ("libcuda.so.1", "cuda.cpp", None),
    ("libcublas.so.12", "cublas.cpp", "cupy_backends/cuda/libs/cublas"),
    ("libcusolver.so.11", "cusolver.cpp", "cupy_backends/cuda/libs/cusolver"),
    ("libcufft.so.11", "cufft.cpp", "cupy/cuda/cufft"),
    ("libcusparse.so.12", None, "cupy_backends/cuda/libs/cusparse"),
    ("libcurand.so.10", None, "cupy_backends/cuda/libs/curand"),
    ("libcublasLt.so.12", "cublaslt.cpp", None),
    ("libcudnn.so.9", "cudnn.cpp", None),
    ("libnvJitLink.so.12", None, None),
)
COMPILE = ["g++", "-O2", "-w", "-fPIC", "-std=c++17"]


def said(*command: str | Path, **options: object) -> str:
    """The command's standard output. Ends the build with its errors if it fails."""
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(str(each) for each in command)}\n{done.stdout[-3000:]}{done.stderr[-6000:]}")
    return done.stdout


class Build:
    """The folders of one build."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site"  # what PYTHONPATH gets: CuPy, NVRTC and CUDA's headers
        self.tools = folder / "tools"  # Cython, only for this build
        self.source = folder / "source"
        self.objects = folder / "objects"
        self.lib = folder / "lib"
        for each in (folder, self.objects, self.lib):
            each.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        self.install()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self.translate, MODULES))
        self.runtime()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda each: self.library(*each), LIBRARIES))
        for name, sources in MODULES.items():
            self.module(name, sources)

    def install(self) -> None:
        """Install the pinned packages into their folders and unpack CuPy's source distribution."""
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
        for file, folder in (("requirements.txt", self.site), ("build-requirements.txt", self.tools)):
            if not folder.exists():
                said(*pip, "install", "--no-deps", "--require-hashes", "--target", folder, "--requirement", HERE / file)
        if self.source.exists():
            return
        archives = self.objects / "archives"
        # pip runs setup.py even to download: setuptools is found beside Cython, and CuPy's stub mode needs no CUDA.
        environment = os.environ | {"PYTHONPATH": str(self.tools), "CUPY_INSTALL_USE_STUB": "1"}
        said(
            *pip, "download", "--no-deps", "--no-binary", "cupy", "--no-build-isolation", "--require-hashes",
            "--dest", archives, "--requirement", HERE / "source-requirements.txt", env=environment,
        )  # fmt: skip
        unpacked = self.objects / "unpacked"
        with tarfile.open(next(archives.glob("cupy-*.tar.gz"))) as archive:
            archive.extractall(unpacked, filter="data")
        next(unpacked.iterdir()).rename(self.source)

    def translate(self, name: str) -> None:
        """Cython's C++ of a module of CuPy, compiled."""
        target = self.objects / f"{name}.o"
        if target.exists():
            return
        said(
            sys.executable,
            HERE / "translate.py",
            name,
            cwd=self.source,
            env=os.environ | {"PYTHONPATH": str(self.tools)},
        )
        source = self.source / (name.replace(".", "/") + ".cpp")
        includes = (sysconfig.get_path("include"), self.numpy(), self.source / "cupy", *self.headers())
        # The declarations of cupy_thrust.h and its kin are C's in one module and C++'s in the other.
        made = self.objects / f"{name}.o.tmp"
        said(*COMPILE[:1], "-O1", *COMPILE[2:], "-c", "-include", NATIVE / "extension.h", source, "-o", made,
             *(f"-I{each}" for each in includes))  # fmt: skip
        made.rename(target)

    def headers(self) -> tuple[Path, ...]:
        nvidia, own = self.site / "nvidia", self.site / "cupy/_core/include"
        cccl = (own / "cupy/_cccl" / each for each in ("thrust", "cub", "libcudacxx"))
        return (NATIVE, nvidia / "cuda_runtime/include", nvidia / "cuda_nvcc/include", own, *cccl)

    def numpy(self) -> str:
        return said(sys.executable, "-c", "import numpy; print(numpy.get_include())").strip()

    def native(self, source: str) -> Path:
        """One of the sources beside this file, compiled."""
        target = self.objects / f"{source}.o"
        if not target.exists() or target.stat().st_mtime < (NATIVE / source).stat().st_mtime:
            said(*COMPILE, "-c", NATIVE / source, "-o", target, *(f"-I{each}" for each in self.headers()))
        return target

    def stubs(self, library: str, wanted: set[str], objects: list[Path]) -> Path:
        """Functions that fail and say their name, for all that CuPy links and the objects lack."""
        missing = sorted(wanted - names("--defined-only", *objects))
        lines = [
            f'int {each}() {{ fprintf(stderr, "hostcupy: {library} has no {each}\\n"); return 801; }}'
            for each in missing
        ]
        source = self.objects / f"{library}.stubs.c"
        source.write_text("#include <stdio.h>\n" + "\n".join(lines) + "\n")
        target = source.with_suffix(".o")
        said("gcc", "-O1", "-w", "-fPIC", "-c", source, "-o", target)
        return target

    def link(self, library: str, objects: list[Path], *others: str) -> None:
        target = self.lib / library
        versions = self.objects / f"{library}.map"
        versions.write_text(f"{library} {{ global: *; }};\n")
        said("g++", "-shared", "-fPIC", *objects, "-o", target, f"-Wl,-soname,{library}",
             f"-Wl,--version-script={versions}", "-Wl,-rpath,$ORIGIN", *others, "-ldl")  # fmt: skip

    def runtime(self) -> None:
        """libhostcudart.so: the functions of the CUDA runtime that the four modules call."""
        modules = [self.objects / f"{name}.o" for name in MODULES]
        extra = [self.native(source) for sources in MODULES.values() for source in sources]
        wanted = {name for name in names("--undefined-only", *modules, *extra) if re.fullmatch(r"cuda[A-Z]\w*", name)}
        objects = [self.native("cudart.cpp")]
        self.link("libhostcudart.so", [*objects, self.stubs("libhostcudart.so", wanted, objects)])

    def library(self, name: str, source: str | None, module: str | None) -> None:
        """A library that CuPy loads by name; without a source its functions all fail."""
        objects = [self.native(source)] if source else []
        wanted: set[str] = set()
        if module is not None:
            prefix = re.match(r"lib(\w+)\.", name).group(1)
            listed = names("-D", "--undefined-only", self.site / f"{module}{SUFFIX}")
            wanted = {each for each in listed if each.lower().startswith(prefix)}
        self.link(name, [*objects, self.stubs(name, wanted, objects)], f"-L{self.lib}", "-lhostcudart")

    def module(self, name: str, sources: tuple[str, ...]) -> None:
        """Replace a module of the installed CuPy by the one compiled here."""
        target = self.site / (name.replace(".", "/") + SUFFIX)
        objects = [self.objects / f"{name}.o", *(self.native(source) for source in sources)]
        made = self.objects / target.name
        said("g++", "-shared", "-fPIC", *objects, "-o", made, f"-L{self.lib}", "-lhostcudart", f"-Wl,-rpath,{self.lib}")
        shutil.move(made, target)


def names(*arguments: str | Path) -> set[str]:
    """The symbols that nm lists, without versions."""
    files = [each for each in arguments if isinstance(each, Path)]
    if not files:
        return set()
    told = said("nm", "-P", *arguments)
    return {line.split()[0].split("@")[0] for line in told.splitlines() if len(line.split()) > 1}


if __name__ == "__main__":
    Build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "hostcupy").resolve()).run()
