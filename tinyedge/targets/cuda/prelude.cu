// Helpers of generated kernels: C++17 for CUDA, without any header.
#define TE static __device__ __forceinline__
#define TE_INFINITY __int_as_float(0x7f800000)
#define TE_NAN __int_as_float(0x7fc00000)

// Single instructions. Another compiler than NVIDIA's brings its own of these.
#ifndef TE_OWN_INSTRUCTIONS
// 1 / x within one unit in the last place, in place of a dozen instructions and a call.
TE float te_reciprocal(float x) {
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
TE unsigned short te_half_bits(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
TE unsigned short te_half_bits(double x) {
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return bits;
}
TE float te_half_value(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
#endif

// Halves: 16 bits in memory; arithmetic is on floats.
struct half {
    unsigned short bits;
    half() = default;
    __device__ __forceinline__ explicit half(float x) : bits(te_half_bits(x)) {}
    __device__ __forceinline__ explicit half(double x) : bits(te_half_bits(x)) {}
    __device__ __forceinline__ operator float() const { return te_half_value(bits); }
};

// Vectors of float, int and uint are CUDA's own. Masks, and halves on their way from and to memory:
struct bool2 { bool x, y; };
struct bool4 { bool x, y, z, w; };
struct alignas(4) half2 { half x, y; };
struct alignas(8) half4 { half x, y, z, w; };

// Consecutive elements in one transaction; the address is a multiple of their size.
template <class V> TE V te_load(const void *p) { return *static_cast<const V *>(p); }
template <class V> TE void te_store(void *p, V x) { *static_cast<V *>(p) = x; }

// The same bits as another type.
template <class To, class From> TE To te_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}

// The value of the thread of the warp whose number differs by the bits of offset.
template <class T> TE T te_shuffle(T x, int offset) {
    return __shfl_xor_sync(0xffffffffu, x, offset);
}

#define TE_MATH(name)                                                                              \
    TE float te_##name(float x) { return name##f(x); }                                             \
    TE double te_##name(double x) { return name(x); }
TE_MATH(exp)
TE_MATH(log)
TE_MATH(sqrt)
TE_MATH(sin)
TE_MATH(cos)
TE_MATH(tanh)
TE_MATH(floor)
TE_MATH(trunc)
TE_MATH(rint)
TE float te_pow(float x, float y) { return powf(x, y); }
TE double te_pow(double x, double y) { return pow(x, y); }
TE float te_fmod(float x, float y) { return fmodf(x, y); }
TE double te_fmod(double x, double y) { return fmod(x, y); }
template <class T> TE bool te_isnan(T x) { return x != x; }

// A NaN in either operand gives NaN.
template <class T> TE T te_max(T a, T b) { return a < b || b != b ? b : a; }
template <class T> TE T te_min(T a, T b) { return a > b || b != b ? b : a; }

// Integers wrap: arithmetic modulo 2^64, cut to the type.
template <class T> TE T te_add(T a, T b) { return (T)((unsigned long long)a + (unsigned long long)b); }
template <class T> TE T te_sub(T a, T b) { return (T)((unsigned long long)a - (unsigned long long)b); }
template <class T> TE T te_mul(T a, T b) { return (T)((unsigned long long)a * (unsigned long long)b); }
template <class T> TE T te_neg(T a) { return (T)(0ull - (unsigned long long)a); }
template <class T> TE T te_abs(T a) { return a < 0 ? te_neg(a) : a; }
TE float te_add(float a, float b) { return a + b; }
TE float te_sub(float a, float b) { return a - b; }
TE float te_mul(float a, float b) { return a * b; }
TE float te_div(float a, float b) { return a / b; }
TE float te_neg(float a) { return -a; }
TE float te_abs(float x) { return fabsf(x); }
TE double te_abs(double x) { return fabs(x); }

template <class T> TE T te_and(T a, T b) { return (T)(a & b); }
template <class T> TE T te_or(T a, T b) { return (T)(a | b); }
template <class T> TE T te_xor(T a, T b) { return (T)(a ^ b); }
template <class T> TE T te_not(T a) { return (T)~a; }
TE bool te_not(bool a) { return !a; }
template <class T> TE bool te_lt(T a, T b) { return a < b; }
template <class T> TE bool te_le(T a, T b) { return a <= b; }
template <class T> TE bool te_eq(T a, T b) { return a == b; }

// Quotients: a zero divisor counts as one, the least integer by -1 wraps.
template <class T> TE bool te_minus_one(T b) { return (T)-1 < (T)0 && b == (T)-1; }
template <class T> TE T te_truncdiv(T a, T b) {
    if (b == 0) return a;
    return te_minus_one(b) ? te_neg(a) : (T)(a / b);
}
template <class T> TE T te_remainder(T a, T b) {
    return b == 0 || te_minus_one(b) ? (T)0 : (T)(a % b);
}
// Rounded down; the remainder has the divisor's sign.
template <class T> TE T te_floordiv(T a, T b) {
    const T r = te_remainder(a, b);
    return te_sub(te_truncdiv(a, b), (T)(r != 0 && (r < 0) != (b < 0)));
}
template <class T> TE T te_mod(T a, T b) {
    const T r = te_remainder(a, b);
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}

// Shifts by the width or more give 0, or the sign.
template <class T> TE T te_shl(T a, T b) {
    return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)0 : (T)((unsigned long long)a << b);
}
template <class T> TE T te_shr(T a, T b) {
    if (b < 0 || b >= (T)(8 * sizeof(T))) return a < 0 ? (T)-1 : (T)0;
    return (T)(a >> b);
}

// Floats to integers truncate and saturate, NaN gives 0; integers to integers wrap.
#define TE_FROM(name, type, from, low, high, beyond)                                               \
    TE type te_to_##name(from x) {                                                                 \
        if (x != x) return 0;                                                                      \
        if (x <= (from)low) return low;                                                            \
        return x >= (from)beyond ? high : (type)x;                                                 \
    }
#define TE_TO_INTEGER(name, type, low, high, beyond)                                               \
    template <class T> TE type te_to_##name(T x) { return (type)x; }                               \
    TE_FROM(name, type, float, low, high, beyond)                                                  \
    TE_FROM(name, type, double, low, high, beyond)                                                 \
    TE type te_to_##name(half x) { return te_to_##name((float)x); }
TE_TO_INTEGER(int8, signed char, -128, 127, 128)
TE_TO_INTEGER(int16, short, -32768, 32767, 32768)
TE_TO_INTEGER(int32, int, (-2147483647 - 1), 2147483647, 0x1p31)
TE_TO_INTEGER(int64, long long, (-0x7fffffffffffffffll - 1), 0x7fffffffffffffffll, 0x1p63)
TE_TO_INTEGER(uint8, unsigned char, 0, 255, 256)
TE_TO_INTEGER(uint16, unsigned short, 0, 65535, 65536)
TE_TO_INTEGER(uint32, unsigned int, 0, 0xffffffffu, 0x1p32)
TE_TO_INTEGER(uint64, unsigned long long, 0, 0xffffffffffffffffull, 0x1p64)
template <class T> TE bool te_to_bool(T x) { return x != 0; }
template <class T> TE float te_to_float32(T x) { return (float)x; }
template <class T> TE half te_to_float16(T x) { return half((float)x); }
TE half te_to_float16(double x) { return half(x); }

// The same of vectors, lane by lane.
#define TE_SPLAT(V, T)                                                                             \
    TE V##2 te_##V##2(T x) { return {x, x}; }                                                      \
    TE V##4 te_##V##4(T x) { return {x, x, x, x}; }                                                \
    TE V##2 te_select(bool2 c, V##2 a, V##2 b) { return {c.x ? a.x : b.x, c.y ? a.y : b.y}; }      \
    TE V##4 te_select(bool4 c, V##4 a, V##4 b) {                                                   \
        return {c.x ? a.x : b.x, c.y ? a.y : b.y, c.z ? a.z : b.z, c.w ? a.w : b.w};               \
    }
#define TE_ONE(name, R, V, scalar)                                                                 \
    TE R##2 name(V##2 a) { return {scalar(a.x), scalar(a.y)}; }                                    \
    TE R##4 name(V##4 a) { return {scalar(a.x), scalar(a.y), scalar(a.z), scalar(a.w)}; }
#define TE_TWO(name, R, V, scalar)                                                                 \
    TE R##2 name(V##2 a, V##2 b) { return {scalar(a.x, b.x), scalar(a.y, b.y)}; }                  \
    TE R##4 name(V##4 a, V##4 b) {                                                                 \
        return {scalar(a.x, b.x), scalar(a.y, b.y), scalar(a.z, b.z), scalar(a.w, b.w)};           \
    }
#define TE_SHUFFLE(V)                                                                              \
    TE V##2 te_shuffle(V##2 a, int i) { return {te_shuffle(a.x, i), te_shuffle(a.y, i)}; }         \
    TE V##4 te_shuffle(V##4 a, int i) {                                                            \
        return {te_shuffle(a.x, i), te_shuffle(a.y, i), te_shuffle(a.z, i), te_shuffle(a.w, i)};   \
    }
#define TE_NUMBERS(V)                                                                              \
    TE_SHUFFLE(V)                                                                                  \
    TE_ONE(operator-, V, V, te_neg)                                                                \
    TE_TWO(operator+, V, V, te_add)                                                                \
    TE_TWO(operator-, V, V, te_sub)                                                                \
    TE_TWO(operator*, V, V, te_mul)                                                                \
    TE_TWO(operator<, bool, V, te_lt)                                                              \
    TE_TWO(operator<=, bool, V, te_le)                                                             \
    TE_TWO(operator==, bool, V, te_eq)                                                             \
    TE_TWO(te_max, V, V, te_max)                                                                   \
    TE_TWO(te_min, V, V, te_min)
#define TE_BITWISE(V)                                                                              \
    TE_ONE(operator~, V, V, te_not)                                                                \
    TE_TWO(operator&, V, V, te_and)                                                                \
    TE_TWO(operator|, V, V, te_or)                                                                 \
    TE_TWO(operator^, V, V, te_xor)
#define TE_INTEGERS(V)                                                                             \
    TE_TWO(te_truncdiv, V, V, te_truncdiv)                                                         \
    TE_TWO(te_floordiv, V, V, te_floordiv)                                                         \
    TE_TWO(te_mod, V, V, te_mod)                                                                   \
    TE_TWO(te_shl, V, V, te_shl)                                                                   \
    TE_TWO(te_shr, V, V, te_shr)
#define TE_CONVERSIONS(name, R)                                                                    \
    TE_ONE(name, R, float, name)                                                                   \
    TE_ONE(name, R, int, name)                                                                     \
    TE_ONE(name, R, uint, name)                                                                    \
    TE_ONE(name, R, bool, name)                                                                    \
    TE_ONE(name, R, half, name)
TE_SPLAT(float, float)
TE_SPLAT(int, int)
TE_SPLAT(uint, unsigned int)
TE_SPLAT(bool, bool)
TE_SPLAT(half, half)
TE_NUMBERS(float)
TE_NUMBERS(int)
TE_NUMBERS(uint)
TE_BITWISE(int)
TE_BITWISE(uint)
TE_BITWISE(bool)
TE_INTEGERS(int)
TE_INTEGERS(uint)
TE_CONVERSIONS(te_to_float32, float)
TE_CONVERSIONS(te_to_int32, int)
TE_CONVERSIONS(te_to_uint32, uint)
TE_CONVERSIONS(te_to_bool, bool)
TE_CONVERSIONS(te_to_float16, half)
TE_TWO(operator==, bool, bool, te_eq)
TE_TWO(operator/, float, float, te_div)
TE_TWO(te_pow, float, float, te_pow)
TE_TWO(te_fmod, float, float, te_fmod)
TE_ONE(te_reciprocal, float, float, te_reciprocal)
TE_ONE(te_isnan, bool, float, te_isnan)
TE_ONE(te_abs, float, float, te_abs)
TE_ONE(te_abs, int, int, te_abs)
TE_ONE(te_exp, float, float, te_exp)
TE_ONE(te_log, float, float, te_log)
TE_ONE(te_sqrt, float, float, te_sqrt)
TE_ONE(te_sin, float, float, te_sin)
TE_ONE(te_cos, float, float, te_cos)
TE_ONE(te_tanh, float, float, te_tanh)
TE_ONE(te_floor, float, float, te_floor)
TE_ONE(te_trunc, float, float, te_trunc)
TE_ONE(te_rint, float, float, te_rint)
