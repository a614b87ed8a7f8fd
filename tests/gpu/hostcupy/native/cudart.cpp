// A CUDA runtime whose device is the host's memory.
#include <cuda_runtime_api.h>
#include <cuda_profiler_api.h>
#include <cstdlib>
#include <cstring>
#include <cstdio>
#include <map>
#include <mutex>
#include <atomic>
#include <functional>
#include <vector>
#include <unistd.h>
#include <sys/mman.h>
static thread_local int dev = 0;
static int ndev() { const char* s = getenv("HOSTCUPY_DEVICES"); return s ? atoi(s) : 1; }
static std::mutex mu;
static std::map<char*, std::pair<size_t,int>> allocs;
static size_t used[16];
static size_t total() { const char* s = getenv("HOSTCUPY_MEMORY"); return s ? strtoull(s,0,10) : (size_t)8 << 30; }
static std::atomic<long> n_launch{0}, n_sync{0}, n_d2h{0}, n_h2d{0}, n_malloc{0}, n_memset{0}, n_d2d{0}, n_graph{0};
// Capture into a graph: what a capturing thread asks of its stream is recorded. All else that CUDA refuses there ends
// the capture with an error: allocations, waits, copies from or to the host, and work on other streams.
typedef std::function<void()> Work;
struct Recorded { std::vector<Work> nodes; };
static thread_local cudaStream_t capturing = nullptr;
static thread_local Recorded* recorded = nullptr;
static thread_local bool spoiled = false;
static bool illegal() { if (capturing) spoiled = true; return capturing != nullptr; }
#define NOT_CAPTURED if (illegal()) return cudaErrorStreamCaptureUnsupported;
static bool on_device(const void* p) { std::lock_guard<std::mutex> g(mu); auto it = allocs.upper_bound((char*)p); return it != allocs.begin() && (--it, (char*)p < it->first + it->second.first); }
extern "C" {
// What becomes of work on a stream: 0 it runs, 1 it was recorded, else an error. Takes the work over.
int fake_take(void* stream, void* work) {
  Work* given = (Work*)work;
  if (!capturing) return 0;
  if (stream != (void*)capturing) { spoiled = true; delete given; return cudaErrorStreamCaptureImplicit; }
  recorded->nodes.push_back(std::move(*given)); delete given; return 1; }
bool fake_is_capturing() { return capturing != nullptr; }
long fake_count(int which) { std::atomic<long>* all[] = {&n_launch,&n_sync,&n_d2h,&n_h2d,&n_malloc,&n_memset,&n_d2d,&n_graph}; return all[which]->load(); }
void fake_note(int which) { if (which == 0) illegal(); std::atomic<long>* all[] = {&n_launch,&n_sync,&n_d2h,&n_h2d,&n_malloc,&n_memset,&n_d2d}; (*all[which])++; }
int fake_device() { return dev; }
static std::atomic<int> broken{0};  // the error of every later call, as after an illegal access on a GPU
void fake_break(int error) { broken = error; }
int fake_noop_flag = 0;
void fake_noop(int v) { fake_noop_flag = v; }
const char* cudaGetErrorName(cudaError_t e) { return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorFake"; }
const char* cudaGetErrorString(cudaError_t e) { return e == cudaErrorMemoryAllocation ? "out of memory" : "fake error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { *v = 12090; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { *v = 12090; return cudaSuccess; }
cudaError_t cudaGetDevice(int* d) { *d = dev; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* n) { *n = ndev(); return cudaSuccess; }
cudaError_t cudaSetDevice(int d) { if (d < 0 || d >= ndev()) return cudaErrorInvalidDevice; dev = d; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  switch ((int)a) { case 75: *v = 9; break; case 76: *v = 0; break; case 1: *v = 1024; break; case 16: *v = 132; break; case 10: *v = 32; break; case 115: *v = 1; break;
   case 8: *v = 49152; break; case 97: *v = 232448; break; default: *v = 0; } return cudaSuccess; }
cudaError_t cudaDeviceGetByPCIBusId(int* d, const char*) { *d = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int d) { snprintf(s, n, "0000:0%d:00.0", d); return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { NOT_CAPTURED n_sync++; return (cudaError_t)broken.load(); }
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* p, int d) { memset(p, 0, sizeof *p); snprintf(p->name, 256, "CuPy on the host %d", d); p->totalGlobalMem = total(); p->major = 9; p->multiProcessorCount = 132; p->warpSize = 32; p->maxThreadsPerBlock = 1024; p->sharedMemPerBlock = 49152; p->maxGridSize[0] = 2147483647; p->maxThreadsPerMultiProcessor=2048; return cudaSuccess; }
#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) { return cudaGetDeviceProperties_v2(p, d); }
cudaError_t cudaDeviceCanAccessPeer(int* c, int, int) { *c = getenv("HOSTCUPY_PEER") ? 1 : 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* v, cudaLimit) { *v = 0; return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaMalloc(void** p, size_t n) { NOT_CAPTURED
  std::lock_guard<std::mutex> g(mu); n_malloc++;
  if (used[dev] + n > total()) { *p = nullptr; return cudaErrorMemoryAllocation; }
  if (posix_memalign(p, 512, n ? n : 1)) return cudaErrorMemoryAllocation;
  memset(*p, 0xAB, n < (1<<22) ? n : (1<<22));   // what a GPU's memory holds before is anything
  allocs[(char*)*p] = {n, dev}; used[dev] += n; return cudaSuccess; }
cudaError_t cudaFree(void* p) { NOT_CAPTURED std::lock_guard<std::mutex> g(mu); if (!p) return cudaSuccess; auto it = allocs.find((char*)p); if (it == allocs.end()) return cudaErrorInvalidValue; used[it->second.second] -= it->second.first; allocs.erase(it); free(p); return cudaSuccess; }
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return cudaMalloc(p, n); }
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { NOT_CAPTURED return posix_memalign(p, 4096, n ? n : 1) ? cudaErrorMemoryAllocation : cudaSuccess; }
cudaError_t cudaFreeHost(void* p) { NOT_CAPTURED free(p); return cudaSuccess; }
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) { *t = total(); *f = total() - used[dev]; return cudaSuccess; }
static void note(cudaMemcpyKind k) { if (k == cudaMemcpyDeviceToHost) n_d2h++; else if (k == cudaMemcpyHostToDevice) n_h2d++; else n_d2d++; }
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind k) { NOT_CAPTURED note(k); memmove(d, s, n); return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind k, cudaStream_t t) {
  if (broken) return (cudaError_t)broken.load();
  if (capturing) { if (!on_device(d) || !on_device(s)) return illegal(), cudaErrorStreamCaptureUnsupported; int r = fake_take(t, new Work([=] { memmove(d, s, n); })); return r == 1 ? cudaSuccess : (cudaError_t)r; }
  note(k); memmove(d, s, n); return cudaSuccess; }
cudaError_t cudaMemcpyPeer(void* d, int, const void* s, int, size_t n) { n_d2d++; memmove(d, s, n); return cudaSuccess; }
cudaError_t cudaMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, cudaStream_t) { n_d2d++; memmove(d, s, n); return cudaSuccess; }
cudaError_t cudaMemset(void* d, int v, size_t n) { NOT_CAPTURED n_memset++; memset(d, v, n); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t t) {
  if (capturing) { int r = fake_take(t, new Work([=] { memset(d, v, n); })); return r == 1 ? cudaSuccess : (cudaError_t)r; }
  n_memset++; memset(d, v, n); return cudaSuccess; }
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  std::lock_guard<std::mutex> g(mu); memset(a, 0, sizeof *a);
  auto it = allocs.upper_bound((char*)p); 
  if (it != allocs.begin()) { --it; if ((char*)p < it->first + it->second.first) { a->type = cudaMemoryTypeDevice; a->device = it->second.second; a->devicePointer = (void*)p; return cudaSuccess; } }
  a->type = cudaMemoryTypeUnregistered; a->device = -2; return cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t* s) { *s = (cudaStream_t)malloc(64); return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreate(s); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return cudaStreamCreate(s); }
cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* f) { *f = 0; return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t, int* f) { *f = 0; return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t s) { free(s); return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { NOT_CAPTURED n_sync++; return (cudaError_t)broken.load(); }
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* u, unsigned) { f(s, cudaSuccess, u); return cudaSuccess; }
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void* u) { f(u); return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { NOT_CAPTURED return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) { *e = (cudaEvent_t)malloc(64); return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { free(e); return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* f, cudaEvent_t, cudaEvent_t) { *f = 0; return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { NOT_CAPTURED return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { NOT_CAPTURED n_sync++; return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t t, cudaStreamCaptureStatus* s) { *s = !capturing || t != capturing ? cudaStreamCaptureStatusNone : spoiled ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive; return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t t, cudaStreamCaptureMode) { if (!t) return cudaErrorStreamCaptureUnsupported; if (capturing) return cudaErrorIllegalState; capturing = t; spoiled = false; recorded = new Recorded; return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t t, cudaGraph_t* g) {
  *g = nullptr;
  if (t != capturing || !t) return cudaErrorIllegalState;
  capturing = nullptr;
  if (spoiled) { delete recorded; return cudaErrorStreamCaptureInvalidated; }
  *g = (cudaGraph_t)recorded; return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) { NOT_CAPTURED *e = (cudaGraphExec_t)new Recorded(*(Recorded*)g); return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { delete (Recorded*)g; return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { delete (Recorded*)e; return cudaSuccess; }
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t) { NOT_CAPTURED if (broken) return (cudaError_t)broken.load(); n_graph++; if (!fake_noop_flag) for (Work& work : ((Recorded*)e)->nodes) work(); return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
}
