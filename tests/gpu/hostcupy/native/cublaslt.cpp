// cublasLt's matrix product: what the engine's own calls (backends/cublaslt.py) use of it.
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" { void fake_note(int); int fake_take(void* stream, void* work); bool fake_is_capturing(); extern int fake_noop_flag; }
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
struct Desc { int compute, scale, turned[2]; };
struct Layout { int type, batches; uint64_t rows, columns; int64_t ld, step; };
struct Preference { uint64_t workspace; };
struct Result { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; };
template <class T> static double value(T x) { return (double)x; }
template <> double value(__half x) { return __half2float(x); }
template <> double value(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T, class S> static T rounded(S x) { return (T)x; }
template <> __half rounded(float x) { return __float2half(x); }
template <> __nv_bfloat16 rounded(float x) { return __float2bfloat16(x); }
// In column-major order, with sums in S.
template <class T, class S> static void multiply(Desc d, S alpha, S beta, const T* a, Layout la, const T* b, Layout lb, const T* c, Layout lc, T* out, Layout lo) {
  const int64_t inner = d.turned[0] ? la.rows : la.columns;
  std::vector<S> column(inner);
  for (int64_t q = 0; q < lo.batches; q++, a += la.step, b += lb.step, c += lc.step, out += lo.step)
    for (int64_t j = 0; j < (int64_t)lo.columns; j++) {
      for (int64_t l = 0; l < inner; l++) column[l] = (S)value(d.turned[1] ? b[j + l * lb.ld] : b[l + j * lb.ld]);
      for (int64_t i = 0; i < (int64_t)lo.rows; i++) {
        S sum = 0;
        for (int64_t l = 0; l < inner; l++) sum += (S)value(d.turned[0] ? a[l + i * la.ld] : a[i + l * la.ld]) * column[l];
        sum = alpha * sum;
        if (beta != 0) sum += beta * (S)value(c[i + j * lc.ld]);
        out[i + j * lo.ld] = rounded<T, S>(sum);
      }
    }
}
extern "C" {
int cublasLtCreate(void** h) { *h = new char; return 0; }
int cublasLtDestroy(void* h) { delete (char*)h; return 0; }
int cublasLtMatmulDescCreate(void** d, int compute, int scale) { *d = new Desc{compute, scale, {0, 0}}; return 0; }
int cublasLtMatmulDescDestroy(void* d) { delete (Desc*)d; return 0; }
int cublasLtMatmulDescSetAttribute(void* d, int which, const void* from, size_t size) {
  if ((which != 3 && which != 4) || size != sizeof(int)) return 7;
  memcpy(&((Desc*)d)->turned[which - 3], from, size); return 0; }
int cublasLtMatrixLayoutCreate(void** l, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  if (ld < (int64_t)rows) return 7;
  *l = new Layout{type, 1, rows, columns, ld, 0}; return 0; }
int cublasLtMatrixLayoutDestroy(void* l) { delete (Layout*)l; return 0; }
int cublasLtMatrixLayoutSetAttribute(void* l, int which, const void* from, size_t size) {
  Layout* layout = (Layout*)l;
  if (which == 5 && size == sizeof(int)) { memcpy(&layout->batches, from, size); return 0; }
  if (which == 6 && size == sizeof(int64_t)) { memcpy(&layout->step, from, size); return 0; }
  return 7; }
int cublasLtMatmulPreferenceCreate(void** p) { *p = new Preference{0}; return 0; }
int cublasLtMatmulPreferenceDestroy(void* p) { delete (Preference*)p; return 0; }
int cublasLtMatmulPreferenceSetAttribute(void* p, int which, const void* from, size_t size) {
  if (which == 1 && size == sizeof(uint64_t)) { memcpy(&((Preference*)p)->workspace, from, size); return 0; }
  return which >= 5 && which <= 8 && size == sizeof(uint32_t) ? 0 : 7; }
int cublasLtMatmulAlgoGetHeuristic(void*, void* d, void*, void*, void*, void*, void*, int wanted, Result* results, int* count) {
  if (wanted < 1 || fake_is_capturing()) return 7;
  memset(results, 0, sizeof *results); results->algorithm[0] = ((Desc*)d)->compute; *count = 1; return 0; }
int cublasLtMatmul(void*, void* desc, const void* alpha, const void* a, void* la, const void* b, void* lb, const void* beta, const void* c, void* lc, void* out, void* lo, const uint64_t* algorithm, void*, size_t, void* stream) {
  const Desc d = *(Desc*)desc; const Layout A = *(Layout*)la, B = *(Layout*)lb, C = *(Layout*)lc, O = *(Layout*)lo;
  const uint64_t inner = d.turned[0] ? A.rows : A.columns;
  if (inner != (d.turned[1] ? B.columns : B.rows) || (d.turned[0] ? A.columns : A.rows) != O.rows || (d.turned[1] ? B.rows : B.columns) != O.columns) return 7;
  if (A.type != B.type || B.type != O.type || A.batches != O.batches || B.batches != O.batches || algorithm[0] != (uint64_t)d.compute) return 7;
  const double first = d.scale == F64 ? *(double*)alpha : *(float*)alpha, second = d.scale == F64 ? *(double*)beta : *(float*)beta;
  std::function<void()> work;
  if (O.type == F32) work = [=] { multiply<float, float>(d, first, second, (float*)a, A, (float*)b, B, (float*)c, C, (float*)out, O); };
  else if (O.type == F64) work = [=] { multiply<double, double>(d, first, second, (double*)a, A, (double*)b, B, (double*)c, C, (double*)out, O); };
  else if (O.type == F16) work = [=] { multiply<__half, float>(d, first, second, (__half*)a, A, (__half*)b, B, (__half*)c, C, (__half*)out, O); };
  else if (O.type == BF16) work = [=] { multiply<__nv_bfloat16, float>(d, first, second, (__nv_bfloat16*)a, A, (__nv_bfloat16*)b, B, (__nv_bfloat16*)c, C, (__nv_bfloat16*)out, O); };
  else return 15;
  if (fake_is_capturing()) return fake_take(stream, new std::function<void()>(work)) == 1 ? 0 : 14;
  fake_note(0);
  if (!fake_noop_flag) work();
  return 0; }
}
