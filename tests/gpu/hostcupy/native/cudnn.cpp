// cuDNN's convolutions: what the engine's own calls (backends/cudnn.py) use of it.
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>
extern "C" { void fake_note(int); int fake_take(void* stream, void* work); bool fake_is_capturing(); extern int fake_noop_flag; }
enum { F32 = 0, F64 = 1, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, WRONG = 5000 };
enum { DETERMINISTIC = 1, LOOP = 1, RANDOM = 0 };  // algorithms: the first proposal is one that may not be used
static const size_t WORKSPACE = 1000;
struct Array { int type; std::vector<int> shape, strides; };
struct Moves { int type, groups = 1, math = 0; std::vector<int> padding, stride, dilation; };
struct Handle { void* stream = nullptr; };
struct Proposal { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; };
static_assert(sizeof(Proposal) == 48, "as in cudnn_cnn.h");
// Calls `each` with the offsets of input, weight and output of each product of a convolution.
static void products(const Array& x, const Array& w, const Array& y, const Moves& m, const std::function<void(int64_t, int64_t, int64_t)>& each) {
  const int dims = m.stride.size(), per_group = w.shape[1], out_per_group = w.shape[0] / m.groups;
  int cells = 1, taps = 1, pixels = 1;
  for (int d = 0; d < dims; d++) { cells *= y.shape[2 + d]; taps *= w.shape[2 + d]; pixels *= x.shape[2 + d]; }
  for (int n = 0; n < x.shape[0]; n++)
    for (int o = 0; o < w.shape[0]; o++)
      for (int c = 0; c < per_group; c++)
        for (int cell = 0; cell < cells; cell++)
          for (int tap = 0; tap < taps; tap++) {
            int64_t pixel = 0, step = 1; bool inside = true; int at = cell, k = tap;
            for (int d = dims - 1; d >= 0; d--) {
              const int place = at % y.shape[2 + d] * m.stride[d] - m.padding[d] + k % w.shape[2 + d] * m.dilation[d];
              inside = inside && place >= 0 && place < x.shape[2 + d];
              pixel += place * step; step *= x.shape[2 + d]; at /= y.shape[2 + d]; k /= w.shape[2 + d];
            }
            if (!inside) continue;
            const int64_t plane = (int64_t)n * x.shape[1] + o / out_per_group * per_group + c;
            each(plane * pixels + pixel, ((int64_t)o * per_group + c) * taps + tap, ((int64_t)n * w.shape[0] + o) * cells + cell);
          }
}
static bool fit(const Array& x, const Array& w, const Array& y, const Moves& m) {
  if (x.type != w.type || x.type != y.type || x.type != m.type || x.shape.size() != w.shape.size() || x.shape.size() != y.shape.size()) return false;
  if (x.shape.size() != m.stride.size() + 2 || x.shape[0] != y.shape[0] || y.shape[1] != w.shape[0]) return false;
  if (x.shape[1] != w.shape[1] * m.groups || w.shape[0] % m.groups) return false;
  for (size_t d = 0; d < m.stride.size(); d++) {
    const int reach = (w.shape[2 + d] - 1) * m.dilation[d] + 1;
    if ((x.shape[2 + d] + 2 * m.padding[d] - reach) / m.stride[d] + 1 != y.shape[2 + d]) return false;
  }
  for (const Array* each : {&x, &w, &y}) {
    int64_t step = 1;
    for (int d = (int)each->shape.size() - 1; d >= 0; d--) { if (each->strides[d] != step) return false; step *= each->shape[d]; }
  }
  return true;
}
// Adds up products of two arrays' elements; which: 0 writes x, 1 writes w, 2 writes y.
template <class T> static void run(int which, Array x, Array w, Array y, Moves m, double alpha, const T* first, const T* second, T* out) {
  const Array& made = which == 0 ? x : which == 1 ? w : y;
  int64_t count = 1;
  for (int size : made.shape) count *= size;
  for (int64_t i = 0; i < count; i++) out[i] = 0;
  products(x, w, y, m, [&](int64_t i, int64_t j, int64_t k) {
    if (which == 0) out[i] += first[j] * second[k];
    else if (which == 1) out[j] += first[i] * second[k];
    else out[k] += first[i] * second[j]; });
  for (int64_t i = 0; i < count; i++) out[i] *= (T)alpha;
}
static int compute(int which, void* handle, const void* alpha, const void* beta, void* x, void* w, void* y, void* moves, int algorithm, const void* workspace, size_t size, const void* first, const void* second, void* out) {
  const Array X = *(Array*)x, W = *(Array*)w, Y = *(Array*)y; const Moves m = *(Moves*)moves;
  if (!fit(X, W, Y, m) || algorithm != LOOP || !workspace || size < WORKSPACE || m.math != 3) return BAD_PARAM;
  const double scale = m.type == F64 ? *(const double*)alpha : *(const float*)alpha, kept = m.type == F64 ? *(const double*)beta : *(const float*)beta;
  if (kept != 0) return NOT_SUPPORTED;
  std::function<void()> work;
  if (m.type == F32) work = [=] { run<float>(which, X, W, Y, m, scale, (const float*)first, (const float*)second, (float*)out); };
  else work = [=] { run<double>(which, X, W, Y, m, scale, (const double*)first, (const double*)second, (double*)out); };
  if (fake_is_capturing()) return fake_take(((Handle*)handle)->stream, new std::function<void()>(work)) == 1 ? 0 : WRONG;
  fake_note(0);
  if (!fake_noop_flag) work();
  return 0;
}
static int propose(void* x, void* w, void* y, void* moves, int wanted, int* count, Proposal* proposals) {
  if (wanted < 2 || fake_is_capturing() || !fit(*(Array*)x, *(Array*)w, *(Array*)y, *(Moves*)moves)) return BAD_PARAM;
  memset(proposals, 0, 2 * sizeof *proposals);
  proposals[0] = {RANDOM, 0, 1.0f, 0, 0, 3, {0}};
  proposals[1] = {LOOP, 0, 2.0f, WORKSPACE, DETERMINISTIC, 3, {0}};
  *count = 2;
  return 0;
}
extern "C" {
int cudnnCreate(void** h) { *h = new Handle; return 0; }
int cudnnSetStream(void* h, void* stream) { ((Handle*)h)->stream = stream; return 0; }
int cudnnCreateTensorDescriptor(void** d) { *d = new Array; return 0; }
int cudnnDestroyTensorDescriptor(void* d) { delete (Array*)d; return 0; }
int cudnnSetTensorNdDescriptor(void* d, int type, int dims, const int* shape, const int* strides) {
  if (dims < 4 || dims > 8 || (type != F32 && type != F64)) return BAD_PARAM;
  *(Array*)d = {type, {shape, shape + dims}, {strides, strides + dims}}; return 0; }
int cudnnCreateFilterDescriptor(void** d) { *d = new Array; return 0; }
int cudnnDestroyFilterDescriptor(void* d) { delete (Array*)d; return 0; }
int cudnnSetFilterNdDescriptor(void* d, int type, int layout, int dims, const int* shape) {
  if (layout || dims < 4 || dims > 8) return BAD_PARAM;
  std::vector<int> strides(dims, 1);
  for (int axis = dims - 2; axis >= 0; axis--) strides[axis] = strides[axis + 1] * shape[axis + 1];
  *(Array*)d = {type, {shape, shape + dims}, strides}; return 0; }
int cudnnCreateConvolutionDescriptor(void** d) { *d = new Moves; return 0; }
int cudnnDestroyConvolutionDescriptor(void* d) { delete (Moves*)d; return 0; }
int cudnnSetConvolutionNdDescriptor(void* d, int dims, const int* padding, const int* stride, const int* dilation, int mode, int type) {
  if (dims < 2 || dims > 6 || mode != 1) return BAD_PARAM;
  for (int i = 0; i < dims; i++) if (padding[i] < 0 || stride[i] < 1 || dilation[i] < 1) return BAD_PARAM;
  Moves* m = (Moves*)d; m->type = type; m->padding.assign(padding, padding + dims); m->stride.assign(stride, stride + dims); m->dilation.assign(dilation, dilation + dims); return 0; }
int cudnnSetConvolutionGroupCount(void* d, int groups) { ((Moves*)d)->groups = groups; return 0; }
int cudnnSetConvolutionMathType(void* d, int math) { ((Moves*)d)->math = math; return 0; }
int cudnnGetConvolutionForwardAlgorithm_v7(void*, void* x, void* w, void* m, void* y, int wanted, int* count, Proposal* out) { return propose(x, w, y, m, wanted, count, out); }
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, void* w, void* y, void* m, void* x, int wanted, int* count, Proposal* out) { return propose(x, w, y, m, wanted, count, out); }
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, void* x, void* y, void* m, void* w, int wanted, int* count, Proposal* out) { return propose(x, w, y, m, wanted, count, out); }
int cudnnConvolutionForward(void* h, const void* alpha, void* x, const void* px, void* w, const void* pw, void* m, int algorithm, void* space, size_t size, const void* beta, void* y, void* py) {
  return compute(2, h, alpha, beta, x, w, y, m, algorithm, space, size, px, pw, py); }
int cudnnConvolutionBackwardData(void* h, const void* alpha, void* w, const void* pw, void* y, const void* py, void* m, int algorithm, void* space, size_t size, const void* beta, void* x, void* px) {
  return compute(0, h, alpha, beta, x, w, y, m, algorithm, space, size, pw, py, px); }
int cudnnConvolutionBackwardFilter(void* h, const void* alpha, void* x, const void* px, void* y, const void* py, void* m, int algorithm, void* space, size_t size, const void* beta, void* w, void* pw) {
  return compute(1, h, alpha, beta, x, w, y, m, algorithm, space, size, px, py, pw); }
}
