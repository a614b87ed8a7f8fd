"""Cases: modes."""

import gradwire
from tests.client.compile_cases.table import case


@case
def grad_mode():
    held = gradwire.ones(3, requires_grad=True)
    mode = []

    def args():
        if mode:
            gradwire.set_grad_enabled(False)
        return (gradwire.ones(3),)

    return (lambda x: x * held), lambda: mode.append(1), args


@case
def the_default_dtype():
    return (lambda x: x + gradwire.ones(3) * gradwire.tensor(0.1)), lambda: gradwire.set_default_dtype(gradwire.float64)


@case
def whether_grad_mode_is_on():
    def change():
        gradwire.set_grad_enabled(False)

    return (lambda x: x * 2 if gradwire.is_grad_enabled() else x), change
