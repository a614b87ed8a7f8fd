#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <dlfcn.h>
typedef std::complex<float> C; typedef std::complex<double> Z; typedef float S; typedef double D;
extern "C" void fake_note(int);
static void* lib() { static void* h = nullptr; if (!h) { const char* path = getenv("HOSTCUPY_LAPACK"); h = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : nullptr; if (!h) { fprintf(stderr, "hostcupy: HOSTCUPY_LAPACK does not name SciPy's OpenBLAS\n"); abort(); } } return h; }
template<class... A> static void call(const char* name, A... a) { char s[64]; snprintf(s, 64, "scipy_%s_", name); auto f = (void (*)(A...))dlsym(lib(), s); if (!f) { fprintf(stderr, "no %s\n", s); abort(); } f(a...); }
#define OK fake_note(0);
static const char* tr(int t) { return t == 0 ? "N" : t == 1 ? "T" : "C"; }
static const char* up(int u) { return u == 0 ? "L" : "U"; }
extern "C" {
int cusolverDnCreate(void** h) { *h = malloc(64); return 0; } int cusolverDnDestroy(void* h) { free(h); return 0; }
int cusolverDnSetStream(void*, void*) { return 0; } int cusolverDnGetStream(void*, void** s) { *s = 0; return 0; }
int cusolverDnCreateParams(void** h) { *h = malloc(64); return 0; } int cusolverDnDestroyParams(void* h) { free(h); return 0; }
int cusolverGetProperty(int t, int* v) { *v = t == 0 ? 11 : t == 1 ? 7 : 5; return 0; }
#define RC(X, x, RX, orgname, ORG, syname, SY, isC) \
int cusolverDn##X##potrf_bufferSize(void*, int, int, X*, int, int* l) { *l = 1; return 0; } \
int cusolverDn##X##potrf(void*, int u, int n, X* a, int lda, X*, int, int* info) { OK call(#x "potrf", up(u), &n, a, &lda, info, (size_t)1); return 0; } \
int cusolverDn##X##potrfBatched(void*, int u, int n, X** a, int lda, int* info, int cnt) { OK for (int q = 0; q < cnt; q++) call(#x "potrf", up(u), &n, a[q], &lda, info + q, (size_t)1); return 0; } \
int cusolverDn##X##potrs(void*, int u, int n, int r, const X* a, int lda, X* b, int ldb, int* info) { OK call(#x "potrs", up(u), &n, &r, a, &lda, b, &ldb, info, (size_t)1); return 0; } \
int cusolverDn##X##getrf_bufferSize(void*, int, int, X*, int, int* l) { *l = 1; return 0; } \
int cusolverDn##X##getrf(void*, int m, int n, X* a, int lda, X*, int* piv, int* info) { OK std::vector<int> p(m + n + 1); call(#x "getrf", &m, &n, a, &lda, piv ? piv : p.data(), info); return 0; } \
int cusolverDn##X##getrs(void*, int t, int n, int r, const X* a, int lda, const int* piv, X* b, int ldb, int* info) { OK call(#x "getrs", tr(t), &n, &r, a, &lda, piv, b, &ldb, info, (size_t)1); return 0; } \
int cusolverDn##X##geqrf_bufferSize(void*, int m, int n, X*, int, int* l) { *l = (m + n) * 64 + 64; return 0; } \
int cusolverDn##X##geqrf(void*, int m, int n, X* a, int lda, X* tau, X*, int, int* info) { OK int lw = (m + n) * 64 + 64; std::vector<X> w(lw); call(#x "geqrf", &m, &n, a, &lda, tau, w.data(), &lw, info); return 0; } \
int cusolverDn##X##orgname##_bufferSize(void*, int m, int n, int, const X*, int, const X*, int* l) { *l = 64; return 0; } \
int cusolverDn##X##orgname(void*, int m, int n, int k, X* a, int lda, const X* tau, X*, int, int* info) { OK int lw = (m + n) * 64 + 64; std::vector<X> w(lw); call(#x #orgname, &m, &n, &k, a, &lda, tau, w.data(), &lw, info); return 0; } \
int cusolverDn##X##gesvd_bufferSize(void*, int m, int n, int* l) { *l = 64; return 0; } \
int cusolverDn##X##syname##_bufferSize(void*, int, int, int, const X*, int, const RX*, int* l) { *l = 64; return 0; }
RC(S, s, S, orgqr, , syevd, , 0) RC(D, d, D, orgqr, , syevd, , 0) RC(C, c, S, ungqr, , heevd, , 1) RC(Z, z, D, ungqr, , heevd, , 1)
#define SVDR(X, x) int cusolverDn##X##gesvd(void*, signed char ju, signed char jv, int m, int n, X* a, int lda, X* s, X* u, int ldu, X* v, int ldv, X*, int, X*, int* info) { OK int lw = (m + n) * 128 + 256; std::vector<X> w(lw); if (ldu < 1) ldu = 1; if (ldv < 1) ldv = 1; call(#x "gesvd", (char*)&ju, (char*)&jv, &m, &n, a, &lda, s, u, &ldu, v, &ldv, w.data(), &lw, info, (size_t)1, (size_t)1); return 0; } \
 int cusolverDn##X##syevd(void*, int jz, int u, int n, X* a, int lda, X* w, X*, int, int* info) { OK int lw = 2 * n * n + 64 * n + 64, li = 10 * n + 64; std::vector<X> wk(lw); std::vector<int> iw(li); call(#x "syevd", jz ? "V" : "N", up(u), &n, a, &lda, w, wk.data(), &lw, iw.data(), &li, info, (size_t)1, (size_t)1); return 0; }
SVDR(S, s) SVDR(D, d)
#define SVDC(X, x, RX) int cusolverDn##X##gesvd(void*, signed char ju, signed char jv, int m, int n, X* a, int lda, RX* s, X* u, int ldu, X* v, int ldv, X*, int, RX*, int* info) { OK int lw = (m + n) * 128 + 256; std::vector<X> w(lw); std::vector<RX> rw(10 * (m + n) + 64); if (ldu < 1) ldu = 1; if (ldv < 1) ldv = 1; call(#x "gesvd", (char*)&ju, (char*)&jv, &m, &n, a, &lda, s, u, &ldu, v, &ldv, w.data(), &lw, rw.data(), info, (size_t)1, (size_t)1); return 0; } \
 int cusolverDn##X##heevd(void*, int jz, int u, int n, X* a, int lda, RX* w, X*, int, int* info) { OK int lw = 2 * n * n + 64 * n + 64, lr = 2 * n * n + 10 * n + 64, li = 10 * n + 64; std::vector<X> wk(lw); std::vector<RX> rw(lr); std::vector<int> iw(li); call(#x "heevd", jz ? "V" : "N", up(u), &n, a, &lda, w, wk.data(), &lw, rw.data(), &lr, iw.data(), &li, info, (size_t)1, (size_t)1); return 0; }
SVDC(C, c, S) SVDC(Z, z, D)
int cusolverDnCreateSyevjInfo(void** p) { *p = malloc(64); return 0; } int cusolverDnDestroySyevjInfo(void* p) { free(p); return 0; }
int cusolverDnXsyevjSetTolerance(void*, double) { return 0; } int cusolverDnXsyevjSetMaxSweeps(void*, int) { return 0; } int cusolverDnXsyevjSetSortEig(void*, int) { return 0; }
#define JB(X, RX, ev) int cusolverDn##X##ev##jBatched_bufferSize(void*, int, int, int, const X*, int, const RX*, int* l, void*, int) { *l = 64; return 0; } \
 int cusolverDn##X##ev##jBatched(void* h, int jz, int u, int n, X* a, int lda, RX* w, X* wk, int l, int* info, void*, int cnt) { for (int q = 0; q < cnt; q++) cusolverDn##X##ev##d(h, jz, u, n, a + (size_t)q * lda * n, lda, w + (size_t)q * n, wk, l, info + q); return 0; } \
 int cusolverDn##X##ev##j_bufferSize(void*, int, int, int, const X*, int, const RX*, int* l, void*) { *l = 64; return 0; } \
 int cusolverDn##X##ev##j(void* h, int jz, int u, int n, X* a, int lda, RX* w, X* wk, int l, int* info, void*) { return cusolverDn##X##ev##d(h, jz, u, n, a, lda, w, wk, l, info); }
JB(S, S, syev) JB(D, D, syev) JB(C, S, heev) JB(Z, D, heev)
int cusolverDnXsyevd_bufferSize(void*, void*, int, int, int64_t, int, const void*, int64_t, int, const void*, int, size_t* d, size_t* h) { *d = 64; *h = 64; return 0; }
int cusolverDnXsyevd(void* hd, void*, int jz, int u, int64_t n, int at, void* a, int64_t lda, int wt, void* w, int, void*, size_t, void*, size_t, int* info) {
  switch (at) { case 0: return cusolverDnSsyevd(hd, jz, u, n, (S*)a, lda, (S*)w, 0, 0, info); case 1: return cusolverDnDsyevd(hd, jz, u, n, (D*)a, lda, (D*)w, 0, 0, info); case 4: return cusolverDnCheevd(hd, jz, u, n, (C*)a, lda, (S*)w, 0, 0, info); case 5: return cusolverDnZheevd(hd, jz, u, n, (Z*)a, lda, (D*)w, 0, 0, info); } return 15; }
}
// Batches of small matrices: V instead of its adjoint, all of it.
static inline S conjugate(S x) { return x; }
static inline D conjugate(D x) { return x; }
static inline C conjugate(C x) { return std::conj(x); }
static inline Z conjugate(Z x) { return std::conj(x); }
#define SVDJ(X, RX) \
int cusolverDn##X##gesvdjBatched_bufferSize(void*, int, int, int, const X*, int, const RX*, const X*, int, const X*, int, int* l, void*, int) { *l = 1; return 0; } \
int cusolverDn##X##gesvdjBatched(void* h, int vectors, int m, int n, X* a, int lda, RX* s, X* u, int ldu, X* v, int ldv, X*, int, int* info, void*, int count) { \
  std::vector<X> adjoint((size_t)n * n); \
  for (int q = 0; q < count; q++) { \
    cusolverDn##X##gesvd(h, vectors ? 'A' : 'N', vectors ? 'A' : 'N', m, n, a + (size_t)q * lda * n, lda, s + (size_t)q * (m < n ? m : n), u + (size_t)q * ldu * m, ldu, adjoint.data(), n, nullptr, 0, nullptr, info + q); \
    if (vectors) for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) v[(size_t)q * ldv * n + j + (size_t)i * ldv] = conjugate(adjoint[i + (size_t)j * n]); \
  } \
  return 0; }
extern "C" {
int cusolverDnCreateGesvdjInfo(void** p) { *p = malloc(64); return 0; }
int cusolverDnDestroyGesvdjInfo(void* p) { free(p); return 0; }
int cusolverDnXgesvdjSetTolerance(void*, double) { return 0; }
int cusolverDnXgesvdjSetMaxSweeps(void*, int) { return 0; }
int cusolverDnXgesvdjSetSortEig(void*, int) { return 0; }
SVDJ(S, S) SVDJ(D, D) SVDJ(C, S) SVDJ(Z, D)
}
