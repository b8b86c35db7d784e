// CUDA's language for an ordinary C++20 compiler, so that the text of kernels runs on the processor.
// The threads of a block run one after the other in a chosen order; in kernels with barriers or
// shuffles each is a fiber that runs up to the next one, of its warp or of its block. Shared memory is
// NaN when a block begins: where a barrier is missing, a thread reads what another has not written
// yet, in one of the orders at least.
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define __global__ __attribute__((visibility("hidden")))  // a kernel may be called as a function of libc
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static __attribute__((section("shared")))
#define __syncthreads() shim::wait(shim::at_block)
#define __shfl_xor_sync(lanes, value, offset) shim::shuffle(value, offset)
#define __int_as_float(bits) __builtin_bit_cast(float, bits)

struct uint3 { unsigned int x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned int x, y; };
struct alignas(16) uint4 { unsigned int x, y, z, w; };
inline uint3 gridDim, blockDim, blockIdx, threadIdx;

// In place of the prelude's single instructions. Halves are IEEE 754 binary16, rounded to nearest,
// ties to even.
#define TE_OWN_INSTRUCTIONS
static inline float te_reciprocal(float x) { return 1.0f / x; }
static inline unsigned short te_half_bits(double x) {
    const unsigned short sign = signbit(x) ? 0x8000 : 0;
    const double size = fabs(x);
    if (size != size) return 0x7fff;
    if (size >= 65520) return sign | 0x7c00;
    // Below the normal halves: the sum's last place is worth 2^-24, as theirs is.
    if (size < 0x1p-14) return sign | (unsigned short)__builtin_bit_cast(uint64_t, size + 0x1p28);
    const uint64_t bits = __builtin_bit_cast(uint64_t, size);
    const uint64_t half = (UINT64_C(1) << 41) - 1 + (bits >> 42 & 1);  // of the last place that is kept
    return sign | (unsigned short)((bits + half >> 42) - (1008 << 10));
}
static inline float te_half_value(unsigned short bits) {
    const uint32_t size = (uint32_t)(bits & 0x7fff) << 13;
    const bool finite = (bits & 0x7c00) != 0x7c00;
    const float x = finite ? __int_as_float(size) * 0x1p112f : __int_as_float(size | 0x7f800000);
    return bits & 0x8000 ? -x : x;
}

// The ends of all __shared__ arrays, as the linker knows them where there are some.
extern "C" __attribute__((weak)) char __start_shared[], __stop_shared[];

namespace shim {

enum Order { forward, reverse, shuffled };

struct Launch {
    uint32_t grid[3], block[3];
    uint32_t order, seed;
};

enum State { at_warp, at_block, ended };  // where a thread stopped

struct Fiber {
    ucontext_t context;
    State state;
    unsigned long long shuffled;
};

constexpr uint32_t most_threads = 1024, warp_threads = 32;
constexpr size_t stack_bytes = 256 << 10;

inline Fiber fibers[most_threads];
inline ucontext_t scheduler;
inline Fiber *running;
inline void (*run)(void **);  // the kernel's
inline void **arguments;

inline void wait(State state) {
    running->state = state;
    swapcontext(&running->context, &scheduler);
}

// The value of the thread whose number differs by the bits of offset; all threads of the warp ask.
template <class T> T shuffle(T value, int offset) {
    static_assert(sizeof value <= sizeof running->shuffled, "a value of at most 64 bits");
    memcpy(&running->shuffled, &value, sizeof value);
    wait(at_warp);
    memcpy(&value, &fibers[(running - fibers) ^ offset].shuffled, sizeof value);
    wait(at_warp);
    return value;
}

// The positions 0..count in an order: the index-th of them, by a step that shares no factor with count.
class Positions {
    uint32_t count, first = 0, step = 1;
    Order order;

public:
    Positions(uint32_t count, const Launch &launch) : count(count), order((Order)launch.order) {
        static uint32_t state;
        if (order != shuffled) return;
        state = (state + launch.seed) * 1664525u + 1013904223u;
        first = (state >> 8) % count;
        step = (state >> 4) % count + 1;
        while (common(step, count) > 1) step++;
    }
    uint32_t operator[](uint32_t index) const {
        if (order == reverse) return count - 1 - index;
        return (first + (uint64_t)index * step) % count;
    }
    static uint32_t common(uint32_t a, uint32_t b) { return b ? common(b, a % b) : a; }
};

inline uint3 position(uint32_t index, const uint32_t *size) {
    return {index % size[0], index / size[0] % size[1], index / size[0] / size[1]};
}

__attribute__((no_sanitize("address"))) inline void forget_shared() {
    for (volatile char *byte = __start_shared; byte < __stop_shared; byte++) *byte = -1;
}

inline void enter() {
    run(arguments);
    running->state = ended;
}

inline void prepare(uint32_t threads) {
    static char *stacks;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (!stacks) stacks = (char *)mmap(nullptr, most_threads * stack_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    for (uint32_t i = 0; i < threads; i++) {
        ucontext_t &context = fibers[i].context;
        getcontext(&context);
        context.uc_stack.ss_sp = stacks + i * stack_bytes;
        context.uc_stack.ss_size = stack_bytes;
        context.uc_link = &scheduler;
        makecontext(&context, enter, 0);
    }
}

// Let the threads of a warp run to where the block waits, or to the end. False if they part.
inline bool run_warp(uint32_t first, uint32_t threads, const Launch &launch) {
    State state = at_warp;
    while (state == at_warp) {
        const Positions order(threads, launch);
        for (uint32_t i = 0; i < threads; i++) {
            const uint32_t thread = first + order[i];
            running = &fibers[thread];
            threadIdx = position(thread, launch.block);
            swapcontext(&scheduler, &running->context);
            if (i > 0 && running->state != state) return false;
            state = running->state;
        }
    }
    return true;
}

// A block with barriers: all threads up to the next one, again and again. False if they part.
inline bool run_block(uint32_t threads, const Launch &launch) {
    const uint32_t warps = (threads + warp_threads - 1) / warp_threads;
    prepare(threads);
    State state = at_block;
    while (state == at_block) {
        const Positions order(warps, launch);
        for (uint32_t i = 0; i < warps; i++) {
            const uint32_t first = order[i] * warp_threads, rest = threads - first;
            if (!run_warp(first, rest < warp_threads ? rest : warp_threads, launch)) return false;
            if (i > 0 && running->state != state) return false;
            state = running->state;
        }
    }
    return true;
}

// Run a kernel; `waits`: it has barriers or shuffles. False if threads part at one.
inline bool start(void (*kernel)(void **), bool waits, const Launch &launch, void **values) {
    const uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
    const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    const Positions order(blocks, launch);
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    run = kernel;
    arguments = values;
    for (uint32_t block = 0; block < blocks; block++) {
        blockIdx = position(order[block], launch.grid);
        if (waits) {
            forget_shared();
            if (!run_block(threads, launch)) return false;
            continue;
        }
        const Positions inner(threads, launch);
        for (uint32_t i = 0; i < threads; i++) {
            threadIdx = position(inner[i], launch.block);
            kernel(values);
        }
    }
    return true;
}

// A call of a kernel with its arguments from their addresses, as the driver's API takes them.
template <int... i> struct Indices {};
template <class... A, int... i> void call(void (*kernel)(A...), void **values, Indices<i...>) {
    kernel(*(A *)values[i]...);
}
template <class... A> void call(void (*kernel)(A...), void **values) {
    call(kernel, values, Indices<__integer_pack(sizeof...(A))...>());
}

}  // namespace shim

#define SHIM_KERNEL(name, waits)                                                                   \
    static void call_##name(void **values) { shim::call(name, values); }                           \
    extern "C" int shim_##name(const shim::Launch *launch, void **values) {                        \
        return shim::start(call_##name, waits, *launch, values);                                   \
    }
