/* The OpenCL backend's own: OpenCL's declarations, a context, what its files share. */
#ifndef TINYEDGE_OPENCL_H
#define TINYEDGE_OPENCL_H

#include "tinyedge_internal.h"

/* --- OpenCL, as much as is used --------------------------------------------------------------- */

typedef struct object *cl_object; /* platforms, devices, contexts, queues, memory, ... */

typedef struct image_format {
    uint32_t order, type;
} image_format;

typedef struct image_description {
    uint32_t type;
    size_t width, height, depth, array_size, row_pitch, slice_pitch;
    uint32_t levels, samples;
    cl_object buffer;
} image_description;

enum {
    BLOCKING = 1,
    OUT_OF_RESOURCES = -5,
    OUT_OF_HOST_MEMORY = -6,
    NO_MEMORY = -4,
    NO_KERNEL = -46,
    TYPE_GPU = 1 << 2,
    OUT_OF_ORDER = 1,
    PROFILING = 2,
    READ_WRITE = 1,
    ALLOC_HOST_PTR = 1 << 4,
    MAP_READ = 1,
    MAP_WRITE_INVALIDATE = 4,
    REGION = 0x1220,
    IMAGE2D = 0x10F1,
    RGBA = 0x10B5,
    HALF_FLOAT = 0x10DD,
    FLOAT = 0x10DE
};

/* What is asked of platforms, devices, contexts, queues, programs, kernels, memory, events. */
enum {
    PLATFORM_VERSION = 0x0901,
    PLATFORM_NAME = 0x0902,
    DEVICE_TYPE = 0x1000,
    MAX_WORK_ITEM_SIZES = 0x1005,
    DEVICE_NAME = 0x102B,
    DRIVER_VERSION = 0x102D,
    DEVICE_PROFILE = 0x102E,
    DEVICE_VERSION = 0x102F,
    DEVICE_PLATFORM = 0x1031,
    CONTEXT_DEVICES = 0x1081,
    QUEUE_CONTEXT = 0x1090,
    QUEUE_DEVICE = 0x1091,
    QUEUE_PROPERTIES = 0x1093,
    MEM_SIZE = 0x1102,
    IMAGE_ROW_PITCH = 0x1112,
    PROGRAM_BINARY_SIZES = 0x1165,
    PROGRAM_BINARIES = 0x1166,
    BUILD_LOG = 0x1183,
    KERNEL_NUM_ARGS = 0x1191,
    KERNEL_WORK_GROUP_SIZE = 0x11B0,
    EVENT_STATUS = 0x11D3,
    PROFILING_START = 0x1282,
    PROFILING_END = 0x1283
};

#define TYPE_ALL UINT64_C(0xffffffff)

#define WAIT_LIST uint32_t, const cl_object *, cl_object *
#define ASK cl_object, uint32_t, size_t, void *, size_t *

/* Result, name and parameters of every function. */
#define FUNCTIONS(X)                                                                               \
    X(int32_t, clGetPlatformIDs, (uint32_t, cl_object *, uint32_t *))                              \
    X(int32_t, clGetPlatformInfo, (ASK))                                                           \
    X(int32_t, clGetDeviceIDs, (cl_object, uint64_t, uint32_t, cl_object *, uint32_t *))           \
    X(int32_t, clGetDeviceInfo, (ASK))                                                             \
    X(cl_object, clCreateContext,                                                                  \
      (const intptr_t *, uint32_t, const cl_object *, void *, void *, int32_t *))                  \
    X(int32_t, clRetainContext, (cl_object))                                                       \
    X(int32_t, clReleaseContext, (cl_object))                                                      \
    X(int32_t, clGetContextInfo, (ASK))                                                            \
    X(cl_object, clCreateCommandQueue, (cl_object, cl_object, uint64_t, int32_t *))                \
    X(int32_t, clRetainCommandQueue, (cl_object))                                                  \
    X(int32_t, clReleaseCommandQueue, (cl_object))                                                 \
    X(int32_t, clGetCommandQueueInfo, (ASK))                                                       \
    X(cl_object, clCreateProgramWithSource,                                                        \
      (cl_object, uint32_t, const char **, const size_t *, int32_t *))                             \
    X(cl_object, clCreateProgramWithBinary,                                                        \
      (cl_object, uint32_t, const cl_object *, const size_t *, const unsigned char **, int32_t *,  \
       int32_t *))                                                                                 \
    X(int32_t, clBuildProgram,                                                                     \
      (cl_object, uint32_t, const cl_object *, const char *, void *, void *))                      \
    X(int32_t, clGetProgramInfo, (ASK))                                                            \
    X(int32_t, clGetProgramBuildInfo, (cl_object, ASK))                                            \
    X(int32_t, clReleaseProgram, (cl_object))                                                      \
    X(cl_object, clCreateKernel, (cl_object, const char *, int32_t *))                             \
    X(int32_t, clSetKernelArg, (cl_object, uint32_t, size_t, const void *))                        \
    X(int32_t, clGetKernelInfo, (ASK))                                                             \
    X(int32_t, clGetKernelWorkGroupInfo, (cl_object, ASK))                                         \
    X(int32_t, clReleaseKernel, (cl_object))                                                       \
    X(cl_object, clCreateBuffer, (cl_object, uint64_t, size_t, void *, int32_t *))                 \
    X(cl_object, clCreateSubBuffer, (cl_object, uint64_t, uint32_t, const void *, int32_t *))      \
    X(cl_object, clCreateImage,                                                                    \
      (cl_object, uint64_t, const image_format *, const image_description *, void *, int32_t *))   \
    X(int32_t, clGetImageInfo, (ASK))                                                              \
    X(int32_t, clGetMemObjectInfo, (ASK))                                                          \
    X(int32_t, clRetainMemObject, (cl_object))                                                     \
    X(int32_t, clReleaseMemObject, (cl_object))                                                    \
    X(int32_t, clEnqueueNDRangeKernel,                                                             \
      (cl_object, cl_object, uint32_t, const size_t *, const size_t *, const size_t *, WAIT_LIST)) \
    X(int32_t, clEnqueueCopyBuffer,                                                                \
      (cl_object, cl_object, cl_object, size_t, size_t, size_t, WAIT_LIST))                        \
    X(int32_t, clEnqueueFillBuffer,                                                                \
      (cl_object, cl_object, const void *, size_t, size_t, size_t, WAIT_LIST))                     \
    X(int32_t, clEnqueueWriteBuffer,                                                               \
      (cl_object, cl_object, uint32_t, size_t, size_t, const void *, WAIT_LIST))                   \
    X(int32_t, clEnqueueWriteImage,                                                                \
      (cl_object, cl_object, uint32_t, const size_t *, const size_t *, size_t, size_t,             \
       const void *, WAIT_LIST))                                                                   \
    X(void *, clEnqueueMapBuffer,                                                                  \
      (cl_object, cl_object, uint32_t, uint64_t, size_t, size_t, WAIT_LIST, int32_t *))            \
    X(int32_t, clEnqueueUnmapMemObject, (cl_object, cl_object, void *, WAIT_LIST))                 \
    X(int32_t, clEnqueueMarkerWithWaitList, (cl_object, WAIT_LIST))                                \
    X(int32_t, clFlush, (cl_object))                                                               \
    X(int32_t, clFinish, (cl_object))                                                              \
    X(int32_t, clWaitForEvents, (uint32_t, const cl_object *))                                     \
    X(int32_t, clGetEventInfo, (ASK))                                                              \
    X(int32_t, clGetEventProfilingInfo, (ASK))                                                     \
    X(int32_t, clReleaseEvent, (cl_object))

/* Numbers that the device says of itself: asked for once, 0 where it does not say. */
#define FACTS(X)                                                                                   \
    X(max_work_group_size, 0x1004) X(address_bits, 0x100D) X(max_mem_alloc_size, 0x1010)           \
    X(image2d_max_width, 0x1011) X(image2d_max_height, 0x1012) X(image_support, 0x1016)            \
    X(max_parameter_size, 0x1017) X(mem_base_addr_align, 0x1019) X(global_mem_size, 0x101F)        \
    X(local_mem_size, 0x1023) X(endian_little, 0x1026) X(host_unified_memory, 0x1035)              \
    X(image_pitch_alignment, 0x104A) X(image_base_address_alignment, 0x104B)

#define MEMBER(result, name, parameters) result(*name) parameters;

typedef struct api {
    FUNCTIONS(MEMBER)
} api;

#define FACT(name, what) uint64_t name;

typedef struct facts {
    FACTS(FACT)
} facts;

/* --- a context -------------------------------------------------------------------------------- */

/* A part of a buffer that is mapped, until settle. */
typedef struct mapped {
    te_part part;
    unsigned char *memory;
} mapped;

typedef struct opencl {
    api cl;
    facts facts;
    cl_object device, context, queue, program, symbols;
    cl_object *arenas, *weights; /* NULL where only images are made of it */
    cl_object *buffers;          /* parts of arenas, or weights; NULL for images without one */
    cl_object *images;
    cl_object *kernels; /* of each step */
    bool *takes_image;  /* a binding, as the kernel's source says */
    mapped *mapped;     /* of inputs or outputs */
    uint32_t mappings;
    bool mapping;   /* what is mapped may not be there yet */
    cl_object last; /* the event at the end of a run */
    int32_t table[TE_MAX_SYMBOLS];
} opencl;

/* --- what the files share --------------------------------------------------------------------- */

/* tinyedge_opencl_open.c: the library and the device. place: of the function in struct api. */
te_status te_opencl_failed(int32_t code, size_t place, te_error *error);
te_status te_opencl_open(opencl *device, const te_model *model, const te_context_options *options,
                         te_error *error);
cl_object te_opencl_platform(const opencl *device);

/* Text that a platform or device gives, "" where it does not, or where it is too long. */
void te_opencl_ask_text(int32_t (*ask)(ASK), cl_object object, uint32_t what, char *to,
                        size_t room);

/* tinyedge_opencl_kernels.c: the program, compiled or from the cache, and its kernels. */
te_status te_opencl_build(opencl *device, const te_context *context, te_error *error);
te_status te_opencl_make_kernel(const opencl *device, const te_model *model, uint32_t number,
                                te_error *error);

/* tinyedge_opencl_memory.c: arenas, weights, parts and images. */
uint32_t te_opencl_memory_count(const te_model *model);
uint64_t te_opencl_lay_out(const te_model *model, opencl *block);
void te_opencl_measure(const te_model *model, const te_context_options *options,
                       te_memory *memory);
te_status te_opencl_make_buffer(const opencl *device, uint64_t bytes, cl_object *buffer,
                                te_error *error);
te_status te_opencl_make_memory(const opencl *device, const te_model *model, te_error *error);
te_sink te_opencl_write_weight;

#define CALL(name, ...)                                                                            \
    TE_TRY(te_opencl_failed(device->cl.name(__VA_ARGS__), offsetof(api, name), error))

/* What makes an object gives its code by a pointer, which comes last. */
#define MAKE(object, name, ...)                                                                    \
    do {                                                                                           \
        int32_t code_ = 0;                                                                         \
        (object) = device->cl.name(__VA_ARGS__, &code_);                                           \
        TE_TRY(te_opencl_failed(code_, offsetof(api, name), error));                               \
    } while (0)

#endif
