"""Translates one module of CuPy to C++ as CuPy's own build does, for CUDA 12.9. Runs in the unpacked source folder."""

import sys

import Cython
from Cython.Compiler.Main import compile_single
from Cython.Compiler.Options import CompilationOptions, get_directive_defaults

name = sys.argv[1]
CONSTANTS = {
    "CUPY_USE_CUDA_PYTHON": False,
    "CUPY_CUFFT_STATIC": False,
    "CUPY_CYTHON_VERSION": Cython.__version__,
    "CUPY_CUDA_VERSION": 12090,
    "CUPY_HIP_VERSION": 0,
}
DIRECTIVES = {
    "embedsignature": True,
    "c_api_binop_methods": True,
    "binding": False,
    "warn.deprecated.IF": False,
    "freethreading_compatible": True,
    "language_level": 3,
}
directives = get_directive_defaults()
directives.update(DIRECTIVES)
options = CompilationOptions(
    compile_time_env=CONSTANTS, compiler_directives=directives, language_level=3, cplus=True, include_path=["."]
)
result = compile_single(name.replace(".", "/") + ".pyx", options, full_module_name=name)
sys.exit(result.num_errors)
