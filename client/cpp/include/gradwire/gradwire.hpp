/// @file
/// All of gradwire for C++: tensors and gradients on a gradwire server, with PyTorch's semantics.
#pragma once

#include "gradwire/autograd.hpp"
#include "gradwire/call.hpp"
#include "gradwire/errors.hpp"
#include "gradwire/function.hpp"
#include "gradwire/ops/fft.hpp"
#include "gradwire/ops/functional.hpp"
#include "gradwire/ops/linalg.hpp"
#include "gradwire/ops/special.hpp"
#include "gradwire/program.hpp"
#include "gradwire/session.hpp"
#include "gradwire/tensor.hpp"
#include "gradwire/values.hpp"
#include "gradwire/version.hpp"
