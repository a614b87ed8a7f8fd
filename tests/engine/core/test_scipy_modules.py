"""SciPy is loaded without what it only names of NumPy, which works when it is used."""

from __future__ import annotations

import subprocess
import sys

from gradwire_engine.core.scipy_modules import scipy_module

_PROGRAM = """
import sys
import numpy as np
from gradwire_engine.core.scipy_modules import scipy_module

def put_off(name):
    return type(sys.modules[name]).__name__ == "_LazyModule"

solved = scipy_module("linalg").solve_triangular(np.array([[2.0, 0], [1, 4]]), np.array([2.0, 9]), lower=True)
transformed = scipy_module("fft").rfft(np.ones(4))
names = ["numpy." + name for name in ("ctypeslib", "f2py", "polynomial", "testing")]
print([name for name in names if not put_off(name)], "numpy.f2py.crackfortran" in sys.modules)
import numpy.ma as masked
from numpy.polynomial import Polynomial
np.testing.assert_array_equal(solved, [1, 2])
np.testing.assert_array_equal(transformed, [4, 0, 0])
print(masked.masked_equal([1, 2], 2).sum(), Polynomial([1, 2])(3), put_off("numpy.polynomial"), np.ma is masked)
"""


def test_packages_of_numpy_that_scipy_names_load_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] False", "1 7.0 False True"]


def test_a_module_is_scipys() -> None:
    import scipy.special

    assert scipy_module("special") is scipy.special
