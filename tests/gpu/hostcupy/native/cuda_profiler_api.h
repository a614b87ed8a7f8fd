// The two functions of the profiler that CuPy declares; NVIDIA's header of this name is in no wheel.
#pragma once
#include <cuda_runtime_api.h>
extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);
