"""TypeScript's stubs: the messages and the service as protoc-gen-es writes them."""

import shutil
from pathlib import Path

from tools.sdk.functions import ROOT
from tools.stubs import PROTOS, compile_protos

LANGUAGE = "TypeScript"
FOLDER = ROOT / "client" / "typescript"

# Stubs

STUBS = ("src/gen/**/*_pb.ts",)
PLUGIN = "protoc-gen-es"


def missing() -> str:
    """What the stubs' generation lacks here, or nothing."""
    return "" if _plugin() else f"{PLUGIN} is not installed; run `npm ci` in client/typescript"


def generate(target: Path) -> None:
    """Write the messages and the service below `target`/src/gen."""
    folder = target / "src" / "gen"
    folder.mkdir(parents=True, exist_ok=True)
    options = "--es_opt=target=ts,import_extension=js"
    compile_protos(ROOT / "proto", f"--plugin={PLUGIN}={_plugin()}", f"--es_out={folder}", options, *PROTOS)


def _plugin() -> str | None:
    """Where the plugin is: among the package's own modules, or on the PATH."""
    return shutil.which(PLUGIN, path=str(FOLDER / "node_modules" / ".bin")) or shutil.which(PLUGIN)
