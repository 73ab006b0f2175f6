/* A stand-in for libcuda.so.1: what Triton calls to load and launch kernels. Nothing runs; launches are noted. */
#include <stdint.h>
#include <string.h>
#include "cuda.h"

#define API CUresult CUDAAPI
#define MOST 64

typedef struct {
  char name[64];
  unsigned grid[3], threads, shared;
  uint64_t stream, args[16];
} Launch;

static Launch launches[1024];
static char names[MOST][64];
static int modules, launched, devices = 2, sizes[16], count;
static CUcontext current;

/* For the tests: how many bytes each argument of the following launches has, and what was noted. */
void fake_expect(int n, const int *bytes) { count = n; memcpy(sizes, bytes, n * sizeof(int)); }
int fake_modules(void) { return modules; }
int fake_launched(void) { return launched; }
const Launch *fake_launch(int i) { return &launches[i]; }

API cuInit(unsigned flags) { return CUDA_SUCCESS; }
API cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
API cuDeviceGetCount(int *n) { *n = devices; return CUDA_SUCCESS; }
API cuDeviceGet(CUdevice *device, int i) { *device = i; return CUDA_SUCCESS; }
API cuCtxGetCurrent(CUcontext *context) { *context = current; return CUDA_SUCCESS; }
API cuCtxSetCurrent(CUcontext context) { current = context; return CUDA_SUCCESS; }
API cuCtxGetDevice(CUdevice *device) { *device = 0; return CUDA_SUCCESS; }
#undef cuDevicePrimaryCtxRetain
API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  *context = (CUcontext)&devices;
  return CUDA_SUCCESS;
}
API cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
API cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 1 << 20; return CUDA_SUCCESS; }
API cuGetErrorString(CUresult error, const char **text) { *text = "an error of the stand-in"; return CUDA_SUCCESS; }

API cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 * 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 228 * 1024; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    default: *value = 65536;
  }
  return CUDA_SUCCESS;
}

API cuModuleLoadData(CUmodule *module, const void *image) {
  if (memcmp(image, "\177ELF", 4) || modules == MOST) return CUDA_ERROR_INVALID_IMAGE;
  *module = (CUmodule)names[modules++];
  return CUDA_SUCCESS;
}
API cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }
API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  strncpy((char *)module, name, 63);
  *function = (CUfunction)module;
  return CUDA_SUCCESS;
}
API cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return CUDA_SUCCESS; }
API cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
API cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  *(CUdeviceptr *)data = pointer;
  return CUDA_SUCCESS;
}
#undef cuStreamIsCapturing
API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) { *status = 0; return CUDA_SUCCESS; }
API cuOccupancyMaxActiveClusters(int *n, CUfunction function, const CUlaunchConfig *config) {
  *n = 1;
  return CUDA_SUCCESS;
}
#undef cuLaunchKernelEx
API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  if (launched == 1024) return CUDA_ERROR_OUT_OF_MEMORY;
  Launch *launch = &launches[launched++];
  memcpy(launch->name, function, 64);
  launch->grid[0] = config->gridDimX;
  launch->grid[1] = config->gridDimY;
  launch->grid[2] = config->gridDimZ;
  launch->threads = config->blockDimX;
  launch->shared = config->sharedMemBytes;
  launch->stream = (uint64_t)config->hStream;
  for (int i = 0; i < count; i++) memcpy(&launch->args[i], params[i], sizes[i]);
  return CUDA_SUCCESS;
}
