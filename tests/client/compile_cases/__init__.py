"""Functions that read state, each with a change of that state: what compile() has to see, one way of reading per case.

A case makes a step, and what to do after its third call; then, if it has them, what makes the step's arguments anew
for each call, what to undo at the end, and what shows the step's effects after each call.
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
