"""Functions that read state in one way each, with a change of that state, which compile() must detect.

A case makes a step, and a change to apply after its third call. Optional parts make new arguments for each call, undo
the change at the end, and return the step's side effects.
"""

from tests.client.compile_cases import (
    callables as callables,
)
from tests.client.compile_cases import (
    computed as computed,
)
from tests.client.compile_cases import (
    containers as containers,
)
from tests.client.compile_cases import (
    incomparable as incomparable,
)
from tests.client.compile_cases import (
    introspection as introspection,
)
from tests.client.compile_cases import (
    modes as modes,
)
from tests.client.compile_cases import (
    modules as modules,
)
from tests.client.compile_cases import (
    names as names,
)
from tests.client.compile_cases import (
    numbers as numbers,
)
from tests.client.compile_cases import (
    objects as objects,
)
from tests.client.compile_cases import (
    replaced as replaced,
)
from tests.client.compile_cases import (
    tensors as tensors,
)
from tests.client.compile_cases import (
    training as training,
)
from tests.client.compile_cases.table import CASES as CASES
