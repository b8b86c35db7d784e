// Helpers of generated kernels, OpenCL C 1.2. NaN is tested by its bits, which holds whatever a compiler assumes of
// floats. Comparisons of vectors give masks of int (0 or -1), those of scalars 0 or 1.
#pragma OPENCL FP_CONTRACT ON

// Images are read at whole coordinates; outside they are zero.
__constant sampler_t te_sampler = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;

#define TE_FLOAT(f, i, float_type, int_type)                                                          \
    static inline int_type te_isnan_##f(float_type x) {                                               \
        return (as_##int_type(x) & 0x7fffffff) > 0x7f800000;                                          \
    }                                                                                                 \
    static inline float_type te_max_##f(float_type a, float_type b) {                                 \
        return select(a, b, (a < b) | te_isnan_##f(b));                                               \
    }                                                                                                 \
    static inline float_type te_min_##f(float_type a, float_type b) {                                 \
        return select(a, b, (a > b) | te_isnan_##f(b));                                               \
    }
TE_FLOAT(f32, i32, float, int)
TE_FLOAT(f32x2, i32x2, float2, int2)
TE_FLOAT(f32x4, i32x4, float4, int4)
TE_FLOAT(f32x8, i32x8, float8, int8)
TE_FLOAT(f32x16, i32x16, float16, int16)

// What a half cannot hold saturates; NaN and infinity stay. `above`: of values that are not below 0, whose bits as an
// unsigned integer are not below infinity's only if they are NaN, infinite or a negative zero.
#define TE_HALF(f, float_type, int_type, uint_type, wide)                                                          \
    static inline float_type te_half_##f(float_type x) {                                                           \
        return select(clamp(x, -65504.0f, 65504.0f), x, (as_##int_type(x) & 0x7fffffff) >= 0x7f800000);            \
    }                                                                                                              \
    static inline float_type te_half_above_##f(float_type x) {                                                     \
        return select(min(x, 65504.0f), x, as_##uint_type(x) >= wide 0x7f800000u);                                 \
    }
TE_HALF(f32, float, int, uint, )
TE_HALF(f32x2, float2, int2, uint2, (uint2))
TE_HALF(f32x4, float4, int4, uint4, (uint4))
TE_HALF(f32x8, float8, int8, uint8, (uint8))
TE_HALF(f32x16, float16, int16, uint16, (uint16))

// An element, or 0 where a guard is false: then the first is read, as a branch takes longer. An offset in bytes that is
// an unsigned integer takes fewer instructions to add to an address of 64 bits than an index.
static inline float te_load_f32(__global const float *b, int i, int guard) {
    const float x = *(__global const float *)((__global const char *)b + ((uint)(guard ? i : 0) << 2));
    return guard ? x : 0.0f;
}
static inline float te_load_half(__global const half *b, int i, int guard) {
    const float x = vload_half(guard ? i : 0, b);
    return guard ? x : 0.0f;
}

// Sine and cosine: x = k pi/2 + r, and the polynomials of Cephes' sinf and cosf (Moshier) on [-pi/4, pi/4].
// Up to 200 by Cody and Waite (Software Manual for the Elementary Functions, 1980): pi/2 in parts of 8 bits, so that
// products with k are exact. Beyond, by Payne and Hanek: the bits of 2/pi that matter, times the significand. Some
// drivers' own functions are wrong in a vector of which an element is large.
__constant uint te_two_over_pi[8] = {
    0, 0x28be60db, 0x9391054a, 0x7f09d5f4, 0x7d4d3770, 0x36d8a566, 0x4f10e410, 0x7f9458ea,
};
static inline uint te_bits_of_two_over_pi(uint at) {
    const ulong both = (ulong)te_two_over_pi[at >> 5] << 32 | te_two_over_pi[(at >> 5) + 1];
    return (uint)(both << (at & 31) >> 32);
}
static inline float te_periodic(float x, int shift) {
    const uint bits = as_uint(x) & 0x7fffffff;
    float r, k = rint(x * 0.63661977f);
    r = ((x - k * 1.5703125f) - k * 0.0004825592041015625f) - k * 0.00000126659870147705f;
    r = r - k * 9.920936e-10f;
    int n = (int)k;
    if (bits > 0x43480000 && bits < 0x7f800000) {
        const uint at = (bits >> 23) - 126, significand = bits << 8 | 0x80000000;
        ulong p = ((ulong)significand * te_bits_of_two_over_pi(at + 64)) >> 32;
        p += (ulong)significand * te_bits_of_two_over_pi(at + 32);
        p += (ulong)(significand * te_bits_of_two_over_pi(at)) << 32;
        const ulong half_turns = (p + 0x2000000000000000UL) >> 62;
        r = (float)((long)(p << 2) >> 2) * 3.4061216e-19f;  // pi/2 * 2^-62
        n = x < 0.0f ? -(int)half_turns : (int)half_turns;
        r = x < 0.0f ? -r : r;
    }
    n += shift;
    const float z = r * r;
    const float sine = ((-1.9515296e-4f * z + 8.332161e-3f) * z - 0.16666655f) * z * r + r;
    const float cosine = ((2.4433157e-5f * z - 1.3887316e-3f) * z + 0.041666646f) * z * z - 0.5f * z + 1.0f;
    const float y = n & 1 ? cosine : sine;
    return bits >= 0x7f800000 ? as_float(0x7fc00000) : n & 2 ? -y : y;
}
#define TE_PERIODIC(name, shift)                                                                      \
    static inline float te_##name##_f32(float x) { return te_periodic(x, shift); }                    \
    static inline float2 te_##name##_f32x2(float2 x) {                                                \
        return (float2)(te_##name##_f32(x.x), te_##name##_f32(x.y));                                  \
    }                                                                                                 \
    static inline float4 te_##name##_f32x4(float4 x) {                                                \
        return (float4)(te_##name##_f32x2(x.lo), te_##name##_f32x2(x.hi));                            \
    }                                                                                                 \
    static inline float8 te_##name##_f32x8(float8 x) {                                                \
        return (float8)(te_##name##_f32x4(x.lo), te_##name##_f32x4(x.hi));                            \
    }                                                                                                 \
    static inline float16 te_##name##_f32x16(float16 x) {                                             \
        return (float16)(te_##name##_f32x8(x.lo), te_##name##_f32x8(x.hi));                           \
    }
TE_PERIODIC(sin, 0)
TE_PERIODIC(cos, 1)

// Floats to integers truncate and saturate; NaN gives 0.
#define TE_TO_INTEGER(f, s, float_type, type)                                                         \
    static inline type te_##f##_to_##s(float_type x) {                                                \
        return te_isnan_##f(x) ? (type)(0) : convert_##type##_sat(x);                                 \
    }
TE_TO_INTEGER(f32, i8, float, char)
TE_TO_INTEGER(f32, u8, float, uchar)
TE_TO_INTEGER(f32, i16, float, short)
TE_TO_INTEGER(f32, u16, float, ushort)
TE_TO_INTEGER(f32, i32, float, int)
TE_TO_INTEGER(f32, u32, float, uint)
TE_TO_INTEGER(f32, i64, float, long)
TE_TO_INTEGER(f32, u64, float, ulong)
TE_TO_INTEGER(f32x2, i32x2, float2, int2)
TE_TO_INTEGER(f32x4, i32x4, float4, int4)
TE_TO_INTEGER(f32x8, i32x8, float8, int8)
TE_TO_INTEGER(f32x16, i32x16, float16, int16)
// The mask has the same width, but the sign differs from that of the result.
static inline uint2 te_f32x2_to_u32x2(float2 x) { return te_isnan_f32x2(x) ? (uint2)(0) : convert_uint2_sat(x); }
static inline uint4 te_f32x4_to_u32x4(float4 x) { return te_isnan_f32x4(x) ? (uint4)(0) : convert_uint4_sat(x); }
static inline uint8 te_f32x8_to_u32x8(float8 x) { return te_isnan_f32x8(x) ? (uint8)(0) : convert_uint8_sat(x); }
static inline uint16 te_f32x16_to_u32x16(float16 x) {
    return te_isnan_f32x16(x) ? (uint16)(0) : convert_uint16_sat(x);
}

// Quotients: floor and mod round down, trunc towards zero; a zero divisor counts as one, the least integer by -1
// wraps. Shifts by the width or more give 0, or the sign.
#define TE_SIGNED(s, type, utype, bits)                                                               \
    static inline type te_max_##s(type a, type b) { return a < b ? b : a; }                           \
    static inline type te_min_##s(type a, type b) { return a > b ? b : a; }                           \
    static inline type te_truncdiv_##s(type a, type b) {                                              \
        return b == 0 ? a : b == -1 ? (type)(0 - (utype)a) : (type)(a / b);                           \
    }                                                                                                 \
    static inline type te_mod_##s(type a, type b) {                                                   \
        const type r = b == 0 || b == -1 ? 0 : (type)(a % b);                                         \
        return r != 0 && (r < 0) != (b < 0) ? (type)(r + b) : r;                                      \
    }                                                                                                 \
    static inline type te_floordiv_##s(type a, type b) {                                              \
        const type r = b == 0 || b == -1 ? 0 : (type)(a % b);                                         \
        return (type)(te_truncdiv_##s(a, b) - (r != 0 && (r < 0) != (b < 0)));                        \
    }                                                                                                 \
    static inline type te_shl_##s(type a, type b) {                                                   \
        return b < 0 || b >= bits ? (type)0 : (type)((utype)a << b);                                  \
    }                                                                                                 \
    static inline type te_shr_##s(type a, type b) {                                                   \
        return (type)(a >> (b < 0 || b >= bits ? bits - 1 : b));                                      \
    }
TE_SIGNED(i8, char, uchar, 8)
TE_SIGNED(i16, short, ushort, 16)
TE_SIGNED(i32, int, uint, 32)
TE_SIGNED(i64, long, ulong, 64)

#define TE_UNSIGNED(s, type, bits)                                                                    \
    static inline type te_max_##s(type a, type b) { return a < b ? b : a; }                           \
    static inline type te_min_##s(type a, type b) { return a > b ? b : a; }                           \
    static inline type te_truncdiv_##s(type a, type b) { return b == 0 ? a : (type)(a / b); }         \
    static inline type te_floordiv_##s(type a, type b) { return b == 0 ? a : (type)(a / b); }         \
    static inline type te_mod_##s(type a, type b) { return b == 0 ? (type)0 : (type)(a % b); }        \
    static inline type te_shl_##s(type a, type b) { return b >= bits ? (type)0 : (type)(a << b); }    \
    static inline type te_shr_##s(type a, type b) { return b >= bits ? (type)0 : (type)(a >> b); }
TE_UNSIGNED(u8, uchar, 8)
TE_UNSIGNED(u16, ushort, 16)
TE_UNSIGNED(u32, uint, 32)
TE_UNSIGNED(u64, ulong, 64)

#define TE_LANES(name, s, type)                                                                       \
    static inline type##2 te_##name##_##s##x2(type##2 a, type##2 b) {                                 \
        return (type##2)(te_##name##_##s(a.x, b.x), te_##name##_##s(a.y, b.y));                       \
    }                                                                                                 \
    static inline type##4 te_##name##_##s##x4(type##4 a, type##4 b) {                                 \
        return (type##4)(te_##name##_##s##x2(a.lo, b.lo), te_##name##_##s##x2(a.hi, b.hi));           \
    }                                                                                                 \
    static inline type##8 te_##name##_##s##x8(type##8 a, type##8 b) {                                 \
        return (type##8)(te_##name##_##s##x4(a.lo, b.lo), te_##name##_##s##x4(a.hi, b.hi));           \
    }                                                                                                 \
    static inline type##16 te_##name##_##s##x16(type##16 a, type##16 b) {                             \
        return (type##16)(te_##name##_##s##x8(a.lo, b.lo), te_##name##_##s##x8(a.hi, b.hi));          \
    }
TE_LANES(truncdiv, i32, int)
TE_LANES(floordiv, i32, int)
TE_LANES(mod, i32, int)
TE_LANES(shl, i32, int)
TE_LANES(shr, i32, int)
TE_LANES(truncdiv, u32, uint)
TE_LANES(floordiv, u32, uint)
TE_LANES(mod, u32, uint)
TE_LANES(shl, u32, uint)
TE_LANES(shr, u32, uint)

