"""Pin what the container images install, with hashes: requirements/<extra>.lock, of pyproject.toml. Needs a network.

The files hold for every Python and platform that is supported, and name no registry: hashes say what is meant,
wherever it comes from. With --upgrade everything is taken as new as it may be, else only what pyproject.toml asks for.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
EXTRAS = ("server", "cuda12", "cuda13", "cluster")
ALSO = ("otel", "web")  # what images have besides


def compile_lock(source: Path, target: str, *options: str) -> None:
    """Resolve a file's requirements into a lock file."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version=3.10"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command += [f"--output-file={FOLDER / target}", str(source), *options]
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv[1:] else []
    FOLDER.mkdir(exist_ok=True)
    for extra in EXTRAS:
        wanted = [f"--extra={name}" for name in (extra, *ALSO)]
        compile_lock(ROOT / "pyproject.toml", f"{extra}.lock", *wanted, *upgrade)
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder, "build.in")
        build.write_text("\n".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]))
        compile_lock(build, "build.lock", *upgrade)


if __name__ == "__main__":
    main()
