// What the CUDA sources under test need of the runtime, where there is none.
#pragma once

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess, cudaErrorNoDevice };
enum cudaDeviceAttr {
  cudaDevAttrCooperativeLaunch,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor
};
inline cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaErrorNoDevice; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
