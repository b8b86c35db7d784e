/* Helpers of generated kernels. Vectors are gcc and clang's; masks are vectors of int32 (0 or -1).
   More than 500 lines: a bundle's kernels are one file, of which this is the beginning. */
#if defined(__GNUC__) && !defined(__clang__)
/* gcc 12 takes some loads in falling order twice when it makes vectors of a loop. Kernels that gain
   from vectors have them written out. */
#pragma GCC optimize("no-tree-loop-vectorize")
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__wasm__)
/* clang's halves for WebAssembly are of memory: no arguments. */
#define _Float16 __fp16
#define TE_HALF float
#else
#define TE_HALF _Float16
#endif

#define TE_INLINE static inline __attribute__((unused, always_inline))

/* The lanes of two vectors of four-byte elements, counted through both. mask: vectors of as many
   int32. */
#ifdef __clang__
#define te_permute(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define te_permute(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif

/* What is read where there is nothing: 4096 elements of any type (Caps.zeros). */
static char te_zeros[4096 * 8] __attribute__((unused, aligned(64)));

/* How many steps a symbolic size is above its offset, never beyond what the kernel was compiled
   for. */
TE_INLINE int32_t te_size(int64_t value, int64_t offset, int64_t step, int32_t least,
                          int32_t greatest) {
    const int64_t steps = (value - offset) / step;
    return steps < least ? least : steps > greatest ? greatest : (int32_t)steps;
}

#define TE_FLOAT(suffix, type, math)                                                                \
    TE_INLINE type te_exp_##suffix(type x) { return exp##math(x); }                                 \
    TE_INLINE type te_log_##suffix(type x) { return log##math(x); }                                 \
    TE_INLINE type te_sqrt_##suffix(type x) { return sqrt##math(x); }                               \
    TE_INLINE type te_sin_##suffix(type x) { return sin##math(x); }                                 \
    TE_INLINE type te_cos_##suffix(type x) { return cos##math(x); }                                 \
    TE_INLINE type te_tanh_##suffix(type x) { return tanh##math(x); }                               \
    TE_INLINE type te_floor_##suffix(type x) { return floor##math(x); }                             \
    TE_INLINE type te_trunc_##suffix(type x) { return trunc##math(x); }                             \
    TE_INLINE type te_rint_##suffix(type x) { return rint##math(x); }                               \
    TE_INLINE type te_abs_##suffix(type x) { return fabs##math(x); }                                \
    TE_INLINE int32_t te_isnan_##suffix(type x) { return isnan(x) != 0; }                           \
    TE_INLINE type te_pow_##suffix(type x, type y) { return pow##math(x, y); }                      \
    TE_INLINE type te_fmod_##suffix(type x, type y) { return fmod##math(x, y); }                    \
    TE_INLINE type te_max_##suffix(type a, type b) { return (a < b || b != b) ? b : a; }            \
    TE_INLINE type te_min_##suffix(type a, type b) { return (a > b || b != b) ? b : a; }
TE_FLOAT(f32, float, f)
TE_FLOAT(f64, double, )

#define TE_INTEGER(suffix, type)                                                                    \
    TE_INLINE type te_max_##suffix(type a, type b) { return a < b ? b : a; }                        \
    TE_INLINE type te_min_##suffix(type a, type b) { return a > b ? b : a; }
TE_INTEGER(i8, int8_t)
TE_INTEGER(i16, int16_t)
TE_INTEGER(i32, int32_t)
TE_INTEGER(i64, int64_t)
TE_INTEGER(u8, uint8_t)
TE_INTEGER(u16, uint16_t)
TE_INTEGER(u32, uint32_t)
TE_INTEGER(u64, uint64_t)

/* Quotients: a zero divisor counts as one, the least integer by -1 wraps. */
#define TE_SIGNED(suffix, type, unsigned_type, bits)                                                \
    TE_INLINE type te_abs_##suffix(type a) { return a < 0 ? (type)(0 - (unsigned_type)a) : a; }     \
    TE_INLINE type te_truncdiv_##suffix(type a, type b) {                                           \
        if (b == 0) return a;                                                                       \
        return b == -1 ? (type)(0 - (unsigned_type)a) : (type)(a / b);                              \
    }                                                                                               \
    TE_INLINE type te_floordiv_##suffix(type a, type b) {                                           \
        const type q = te_truncdiv_##suffix(a, b);                                                  \
        const type r = b == 0 || b == -1 ? 0 : (type)(a % b);                                       \
        return (type)(q - ((r != 0) & ((r < 0) != (b < 0))));                                       \
    }                                                                                               \
    TE_INLINE type te_mod_##suffix(type a, type b) {                                                \
        const type r = b == 0 || b == -1 ? 0 : (type)(a % b);                                       \
        return (type)(r != 0 && (r < 0) != (b < 0) ? r + b : r);                                    \
    }                                                                                               \
    TE_INLINE type te_shl_##suffix(type a, type b) {                                                \
        return b < 0 || b >= bits ? 0 : (type)((unsigned_type)a << b);                              \
    }                                                                                               \
    TE_INLINE type te_shr_##suffix(type a, type b) {                                                \
        return (type)(a >> (b < 0 || b >= bits ? bits - 1 : b));                                    \
    }
TE_SIGNED(i8, int8_t, uint8_t, 8)
TE_SIGNED(i16, int16_t, uint16_t, 16)
TE_SIGNED(i32, int32_t, uint32_t, 32)
TE_SIGNED(i64, int64_t, uint64_t, 64)

#define TE_UNSIGNED(suffix, type, bits)                                                             \
    TE_INLINE type te_truncdiv_##suffix(type a, type b) { return b == 0 ? a : (type)(a / b); }      \
    TE_INLINE type te_floordiv_##suffix(type a, type b) { return b == 0 ? a : (type)(a / b); }      \
    TE_INLINE type te_mod_##suffix(type a, type b) { return b == 0 ? 0 : (type)(a % b); }           \
    TE_INLINE type te_shl_##suffix(type a, type b) { return b >= bits ? 0 : (type)(a << b); }       \
    TE_INLINE type te_shr_##suffix(type a, type b) { return b >= bits ? 0 : (type)(a >> b); }
TE_UNSIGNED(u8, uint8_t, 8)
TE_UNSIGNED(u16, uint16_t, 16)
TE_UNSIGNED(u32, uint32_t, 32)
TE_UNSIGNED(u64, uint64_t, 64)

/* Floats to integers truncate and saturate; NaN gives 0. */
#define TE_FROM_FLOAT(name, type, low, high)                                                        \
    TE_INLINE type te_to_##name(double x) {                                                         \
        if (x != x) return 0;                                                                       \
        if (x <= (double)low) return low;                                                           \
        return x >= (double)high ? high : (type)x;                                                  \
    }
TE_FROM_FLOAT(int8, int8_t, INT8_MIN, INT8_MAX)
TE_FROM_FLOAT(int16, int16_t, INT16_MIN, INT16_MAX)
TE_FROM_FLOAT(int32, int32_t, INT32_MIN, INT32_MAX)
TE_FROM_FLOAT(int64, int64_t, INT64_MIN, INT64_MAX)
TE_FROM_FLOAT(uint8, uint8_t, 0, UINT8_MAX)
TE_FROM_FLOAT(uint16, uint16_t, 0, UINT16_MAX)
TE_FROM_FLOAT(uint32, uint32_t, 0, UINT32_MAX)
TE_FROM_FLOAT(uint64, uint64_t, 0, UINT64_MAX)
TE_FROM_FLOAT(index, int32_t, INT32_MIN, INT32_MAX)

#define TE_BITS(from, to, source, target)                                                           \
    TE_INLINE target te_bits_##from##_to_##to(source x) {                                           \
        target y;                                                                                   \
        memcpy(&y, &x, sizeof y);                                                                   \
        return y;                                                                                   \
    }
#define TE_BITS_BOTH(a, b, first, second)                                                           \
    TE_BITS(a, b, first, second)                                                                    \
    TE_BITS(b, a, second, first)
TE_BITS_BOTH(i8, u8, int8_t, uint8_t)
TE_BITS_BOTH(i16, u16, int16_t, uint16_t)
TE_BITS_BOTH(i32, u32, int32_t, uint32_t)
TE_BITS_BOTH(i64, u64, int64_t, uint64_t)
TE_BITS_BOTH(f32, i32, float, int32_t)
TE_BITS_BOTH(f32, u32, float, uint32_t)
TE_BITS_BOTH(f64, i64, double, int64_t)
TE_BITS_BOTH(f64, u64, double, uint64_t)

#define TE_VECTOR_TYPE(name, element, lanes)                                                        \
    typedef element name __attribute__((vector_size(lanes * 4), may_alias));                        \
    TE_INLINE name te_load_##name(const void *p) {                                                  \
        name x;                                                                                     \
        memcpy(&x, p, sizeof x);                                                                    \
        return x;                                                                                   \
    }                                                                                               \
    TE_INLINE void te_store_##name(void *p, name x) { memcpy(p, &x, sizeof x); }                    \
    TE_INLINE name te_splat_##name(element x) { return x - (name){0}; }

#define TE_EACH(result, lanes, expression)                                                          \
    result y;                                                                                       \
    for (int i = 0; i < lanes; i++) y[i] = expression;                                              \
    return y

/* What clang makes one instruction of, gcc computes lane by lane. From 2^23 on floats are whole. */
#if defined(__clang__)
#define TE_ROUNDING(f, m, lanes)                                                                    \
    TE_INLINE f te_floor_##f(f x) { TE_EACH(f, lanes, floorf(x[i])); }                              \
    TE_INLINE f te_trunc_##f(f x) { TE_EACH(f, lanes, truncf(x[i])); }                              \
    TE_INLINE f te_rint_##f(f x) { TE_EACH(f, lanes, rintf(x[i])); }
#else
#define TE_ROUNDING(f, m, lanes)                                                                    \
    TE_INLINE f te_signed_##f(f x, f sign) { return (f)((m)x | ((m)sign & INT32_MIN)); }            \
    TE_INLINE f te_rint_##f(f x) {                                                                  \
        const f whole = te_signed_##f(te_splat_##f(0x1p23f), x);                                    \
        return te_select_##f(te_abs_##f(x) < 0x1p23f, te_signed_##f((x + whole) - whole, x), x);    \
    }                                                                                               \
    TE_INLINE f te_floor_##f(f x) {                                                                 \
        const f near = te_rint_##f(x);                                                              \
        return near - (f)((near > x) & (m)te_splat_##f(1.0f));                                      \
    }                                                                                               \
    TE_INLINE f te_trunc_##f(f x) { return te_signed_##f(te_floor_##f(te_abs_##f(x)), x); }
#endif
/* The greater and the lesser of two, NaN where one is. The instruction gives the second of two of
   which one is NaN; where b is a constant, it is all that is left. */
#define TE_GREATER(f, a, b) te_select_##f((a < b) | (b != b), b, a)
#define TE_LESSER(f, a, b) te_select_##f((a > b) | (b != b), b, a)
#define TE_MOST_f32x2(a, b) TE_GREATER(f32x2, a, b)
#define TE_LEAST_f32x2(a, b) TE_LESSER(f32x2, a, b)
#if defined(__AVX__) && !defined(__clang__)
#define TE_MOST_f32x4(a, b) __builtin_ia32_blendvps(__builtin_ia32_maxps(b, a), b, (f32x4)(b != b))
#define TE_LEAST_f32x4(a, b) __builtin_ia32_blendvps(__builtin_ia32_minps(b, a), b, (f32x4)(b != b))
#define TE_MOST_f32x8(a, b)                                                                         \
    __builtin_ia32_blendvps256(__builtin_ia32_maxps256(b, a), b, (f32x8)(b != b))
#define TE_LEAST_f32x8(a, b)                                                                        \
    __builtin_ia32_blendvps256(__builtin_ia32_minps256(b, a), b, (f32x8)(b != b))
#else
#define TE_MOST_f32x4(a, b) TE_GREATER(f32x4, a, b)
#define TE_LEAST_f32x4(a, b) TE_LESSER(f32x4, a, b)
#define TE_MOST_f32x8(a, b) TE_GREATER(f32x8, a, b)
#define TE_LEAST_f32x8(a, b) TE_LESSER(f32x8, a, b)
#endif
#if defined(__AVX512F__) && !defined(__clang__)
#define TE_MOST_f32x16(a, b)                                                                        \
    te_select_f32x16(b != b, b, __builtin_ia32_maxps512_mask(b, a, a, -1, 4))
#define TE_LEAST_f32x16(a, b)                                                                       \
    te_select_f32x16(b != b, b, __builtin_ia32_minps512_mask(b, a, a, -1, 4))
#else
#define TE_MOST_f32x16(a, b) TE_GREATER(f32x16, a, b)
#define TE_LEAST_f32x16(a, b) TE_LESSER(f32x16, a, b)
#endif

#define TE_VECTOR(f, m, u, lanes)                                                                   \
    TE_VECTOR_TYPE(f, float, lanes)                                                                 \
    TE_VECTOR_TYPE(m, int32_t, lanes)                                                               \
    TE_VECTOR_TYPE(u, uint32_t, lanes)                                                              \
    TE_INLINE f te_select_##f(m c, f a, f b) { return (f)((c & (m)a) | (~c & (m)b)); }              \
    TE_INLINE m te_select_##m(m c, m a, m b) { return (c & a) | (~c & b); }                         \
    TE_INLINE u te_select_##u(m c, u a, u b) { return ((u)c & a) | (~(u)c & b); }                   \
    TE_INLINE f te_max_##f(f a, f b) { return TE_MOST_##f(a, b); }                                  \
    TE_INLINE f te_min_##f(f a, f b) { return TE_LEAST_##f(a, b); }                                 \
    TE_INLINE m te_max_##m(m a, m b) { return te_select_##m(a < b, b, a); }                         \
    TE_INLINE m te_min_##m(m a, m b) { return te_select_##m(a > b, b, a); }                         \
    TE_INLINE u te_max_##u(u a, u b) { return te_select_##u(a < b, b, a); }                         \
    TE_INLINE u te_min_##u(u a, u b) { return te_select_##u(a > b, b, a); }                         \
    TE_INLINE m te_isnan_##f(f x) { return x != x; }                                                \
    TE_INLINE f te_abs_##f(f x) { return (f)((m)x & 0x7fffffff); }                                  \
    TE_INLINE m te_abs_##m(m x) { return te_select_##m(x < 0, (m)(0 - (u)x), x); }                  \
    TE_INLINE f te_sqrt_##f(f x) { TE_EACH(f, lanes, sqrtf(x[i])); }                                \
    TE_ROUNDING(f, m, lanes)                                                                        \
    TE_INLINE f te_fmod_##f(f x, f z) { TE_EACH(f, lanes, fmodf(x[i], z[i])); }                     \
    TE_INLINE m te_truncdiv_##m(m a, m b) { TE_EACH(m, lanes, te_truncdiv_i32(a[i], b[i])); }       \
    TE_INLINE m te_floordiv_##m(m a, m b) { TE_EACH(m, lanes, te_floordiv_i32(a[i], b[i])); }       \
    TE_INLINE m te_mod_##m(m a, m b) { TE_EACH(m, lanes, te_mod_i32(a[i], b[i])); }                 \
    TE_INLINE m te_shl_##m(m a, m b) { TE_EACH(m, lanes, te_shl_i32(a[i], b[i])); }                 \
    TE_INLINE m te_shr_##m(m a, m b) { TE_EACH(m, lanes, te_shr_i32(a[i], b[i])); }                 \
    TE_INLINE u te_truncdiv_##u(u a, u b) { TE_EACH(u, lanes, te_truncdiv_u32(a[i], b[i])); }       \
    TE_INLINE u te_floordiv_##u(u a, u b) { TE_EACH(u, lanes, te_floordiv_u32(a[i], b[i])); }       \
    TE_INLINE u te_mod_##u(u a, u b) { TE_EACH(u, lanes, te_mod_u32(a[i], b[i])); }                 \
    TE_INLINE u te_shl_##u(u a, u b) { TE_EACH(u, lanes, te_shl_u32(a[i], b[i])); }                 \
    TE_INLINE u te_shr_##u(u a, u b) { TE_EACH(u, lanes, te_shr_u32(a[i], b[i])); }                 \
    TE_INLINE m te_##f##_to_##m(f x) {                                                              \
        const m above = x >= 0x1p31f, inside = (x < 0x1p31f) & (x >= -0x1p31f);                     \
        const m whole = __builtin_convertvector(te_select_##f(inside, x, (f){0}), m);               \
        return te_select_##m(above, te_splat_##m(INT32_MAX),                                        \
                             te_select_##m(x < -0x1p31f, te_splat_##m(INT32_MIN), whole));          \
    }                                                                                               \
    TE_INLINE u te_##f##_to_##u(f x) { TE_EACH(u, lanes, te_to_uint32(x[i])); }                     \
    TE_INLINE f te_##m##_to_##f(m x) { return __builtin_convertvector(x, f); }                      \
    TE_INLINE f te_##u##_to_##f(u x) { return __builtin_convertvector(x, f); }                      \
    TE_INLINE u te_##m##_to_##u(m x) { return (u)x; }                                               \
    TE_INLINE m te_##u##_to_##m(u x) { return (m)x; }                                               \
    TE_INLINE m te_bits_##f##_to_##m(f x) { return (m)x; }                                          \
    TE_INLINE f te_bits_##m##_to_##f(m x) { return (f)x; }                                          \
    TE_INLINE u te_bits_##f##_to_##u(f x) { return (u)x; }                                          \
    TE_INLINE f te_bits_##u##_to_##f(u x) { return (f)x; }                                          \
    TE_INLINE u te_bits_##m##_to_##u(m x) { return (u)x; }                                          \
    TE_INLINE m te_bits_##u##_to_##m(u x) { return (m)x; }
TE_VECTOR(f32x2, i32x2, u32x2, 2)
TE_VECTOR(f32x4, i32x4, u32x4, 4)
TE_VECTOR(f32x8, i32x8, u32x8, 8)
TE_VECTOR(f32x16, i32x16, u32x16, 16)

/* What is written past the caches where it is aligned, so that it is not read before; and what
   orders that before a thread tells others that it is done. */
#if defined(__AVX__) && !defined(__clang__)
#define TE_STREAM(f, bytes, instruction)                                                            \
    TE_INLINE void te_stream_##f(float *p, f x) {                                                   \
        if ((uintptr_t)p % bytes) te_store_##f(p, x);                                               \
        else instruction(p, x);                                                                     \
    }
TE_INLINE void te_fence(void) { __builtin_ia32_sfence(); }
TE_STREAM(f32x4, 16, __builtin_ia32_movntps)
TE_STREAM(f32x8, 32, __builtin_ia32_movntps256)
#else
#define TE_STREAM(f, bytes, instruction) \
    TE_INLINE void te_stream_##f(float *p, f x) { te_store_##f(p, x); }
TE_INLINE void te_fence(void) {}
TE_STREAM(f32x4, 16, )
TE_STREAM(f32x8, 32, )
#endif
#if defined(__AVX512F__) && !defined(__clang__)
TE_INLINE void te_stream_f32x16(float *p, f32x16 x) {
    if ((uintptr_t)p % 64) te_store_f32x16(p, x);
    else __builtin_ia32_movntps512(p, x);
}
#else
TE_INLINE void te_stream_f32x16(float *p, f32x16 x) { te_store_f32x16(p, x); }
#endif
TE_INLINE void te_stream_f32x2(float *p, f32x2 x) { te_store_f32x2(p, x); }

/* The lanes of a vector combined, the first half with the second, until one is left. */
#define TE_LANES(op, two, four, eight, t, type)                                                     \
    TE_INLINE type te_lanes_##op##_##t##x2(t##x2 x) { return two(x, ((t##x2){x[1], x[0]}))[0]; }    \
    TE_INLINE type te_lanes_##op##_##t##x4(t##x4 x) {                                               \
        const t##x4 y = four(x, ((t##x4){x[2], x[3], x[0], x[1]}));                                 \
        return four(y, ((t##x4){y[1], y[0], y[3], y[2]}))[0];                                       \
    }                                                                                               \
    TE_INLINE type te_lanes_##op##_##t##x8(t##x8 x) {                                               \
        const t##x4 low = {x[0], x[1], x[2], x[3]}, high = {x[4], x[5], x[6], x[7]};                \
        return te_lanes_##op##_##t##x4(four(low, high));                                            \
    }                                                                                               \
    TE_INLINE type te_lanes_##op##_##t##x16(t##x16 x) {                                             \
        const t##x8 low = {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};                         \
        const t##x8 high = {x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15]};                  \
        return te_lanes_##op##_##t##x8(eight(low, high));                                           \
    }
#define TE_SUM(a, b) ((a) + (b))
#define TE_PRODUCT(a, b) ((a) * (b))
TE_LANES(add, TE_SUM, TE_SUM, TE_SUM, f32, float)
TE_LANES(mul, TE_PRODUCT, TE_PRODUCT, TE_PRODUCT, f32, float)
TE_LANES(add, TE_SUM, TE_SUM, TE_SUM, u32, uint32_t)
TE_LANES(mul, TE_PRODUCT, TE_PRODUCT, TE_PRODUCT, u32, uint32_t)
TE_LANES(max, te_max_f32x2, te_max_f32x4, te_max_f32x8, f32, float)
TE_LANES(min, te_min_f32x2, te_min_f32x4, te_min_f32x8, f32, float)
TE_LANES(max, te_max_i32x2, te_max_i32x4, te_max_i32x8, i32, int32_t)
TE_LANES(min, te_min_i32x2, te_min_i32x4, te_min_i32x8, i32, int32_t)
TE_LANES(max, te_max_u32x2, te_max_u32x4, te_max_u32x8, u32, uint32_t)
TE_LANES(min, te_min_u32x2, te_min_u32x4, te_min_u32x8, u32, uint32_t)
/* Signed sums and products wrap. */
#define TE_LANES_WRAPPING(op, lanes)                                                                \
    TE_INLINE int32_t te_lanes_##op##_i32x##lanes(i32x##lanes x) {                                  \
        return (int32_t)te_lanes_##op##_u32x##lanes((u32x##lanes)x);                                \
    }
TE_LANES_WRAPPING(add, 2)
TE_LANES_WRAPPING(add, 4)
TE_LANES_WRAPPING(add, 8)
TE_LANES_WRAPPING(add, 16)
TE_LANES_WRAPPING(mul, 2)
TE_LANES_WRAPPING(mul, 4)
TE_LANES_WRAPPING(mul, 8)
TE_LANES_WRAPPING(mul, 16)

/* A product added to a sum, rounded once where the processor does that. */
#if defined(__clang__)
#define TE_FMA(f, lanes)                                                                            \
    TE_INLINE f te_fma_##f(f a, f b, f c) {                                                         \
        _Pragma("clang fp contract(fast)") return a * b + c;                                        \
    }
#elif defined(__FP_FAST_FMAF)
#define TE_FMA(f, lanes)                                                                            \
    TE_INLINE f te_fma_##f(f a, f b, f c) { TE_EACH(f, lanes, __builtin_fmaf(a[i], b[i], c[i])); }
#else
#define TE_FMA(f, lanes)                                                                            \
    TE_INLINE f te_fma_##f(f a, f b, f c) { return a * b + c; }
#endif
TE_FMA(f32x2, 2)
#if defined(__FMA__) && !defined(__clang__)
TE_INLINE f32x4 te_fma_f32x4(f32x4 a, f32x4 b, f32x4 c) { return __builtin_ia32_vfmaddps(a, b, c); }
TE_INLINE f32x8 te_fma_f32x8(f32x8 a, f32x8 b, f32x8 c) { return __builtin_ia32_vfmaddps256(a, b, c); }
#else
TE_FMA(f32x4, 4)
TE_FMA(f32x8, 8)
#endif
#if defined(__AVX512F__) && !defined(__clang__)
TE_INLINE f32x16 te_fma_f32x16(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4); /* all lanes, rounded as usual */
}
#else
TE_FMA(f32x16, 16)
#endif

/* Which of 256 levels, the first of which is `low`, x is next to; they are `step` apart, which is
   the same in all lanes, as is `low`. A number is added from which on a float's last bit is 1. Where
   the processor rounds a product and a sum once, x is multiplied by 1 / step and what that lacks. */
TE_INLINE int32_t te_level_f32(float x, float step, float low) {
    const float least = low * step, most = (low + 255.0f) * step;
    x = x > least ? x : least;
    return (int32_t)rintf((x < most ? x : most) / step);
}
#define TE_LEVEL(f, m, u, above, below)                                                             \
    TE_INLINE m te_level_##f(f x, f steps, f lows) {                                                \
        const float step = steps[0], low = lows[0];                                                 \
        const f least = te_splat_##f(low * step), most = te_splat_##f((low + 255.0f) * step);       \
        x = above;                                                                                  \
        x = below;                                                                                  \
        return (m)((u)(TE_QUOTIENT(f, x, step) + 0x1.8p23f) - 0x4b400000u);                         \
    }
#if defined(__FMA__)
TE_INLINE float te_lacks(float step) { return __builtin_fmaf(-step, 1.0f / step, 1.0f) / step; }
#define TE_QUOTIENT(f, x, step)                                                                     \
    te_fma_##f(x, te_splat_##f(1.0f / step), x * te_splat_##f(te_lacks(step)))
#else
#define TE_QUOTIENT(f, x, step) x / te_splat_##f(step)
#endif
#define TE_LEVEL_CHOSEN(f, m, u)                                                                    \
    TE_LEVEL(f, m, u, te_select_##f(x > least, x, least), te_select_##f(x < most, x, most))
TE_LEVEL_CHOSEN(f32x2, i32x2, u32x2)
#if defined(__AVX__) && !defined(__clang__)
TE_LEVEL(f32x4, i32x4, u32x4, __builtin_ia32_maxps(x, least), __builtin_ia32_minps(x, most))
TE_LEVEL(f32x8, i32x8, u32x8, __builtin_ia32_maxps256(x, least), __builtin_ia32_minps256(x, most))
#else
TE_LEVEL_CHOSEN(f32x4, i32x4, u32x4)
TE_LEVEL_CHOSEN(f32x8, i32x8, u32x8)
#endif
#if defined(__AVX512F__) && !defined(__clang__)
TE_LEVEL(f32x16, i32x16, u32x16, __builtin_ia32_maxps512_mask(x, least, x, -1, 4),
         __builtin_ia32_minps512_mask(x, most, x, -1, 4))
#else
TE_LEVEL_CHOSEN(f32x16, i32x16, u32x16)
#endif

/* Of words of two signed 16-bit integers: both products, added. */
TE_INLINE int32_t te_pairs_i32(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)((int16_t)a * (int16_t)b) + (uint32_t)((a >> 16) * (b >> 16)));
}
#define TE_PAIRS(m, u)                                                                              \
    TE_INLINE m te_pairs_##m(m a, m b) {                                                            \
        const m low = ((m)((u)a << 16) >> 16) * ((m)((u)b << 16) >> 16);                            \
        return (m)((u)low + (u)((a >> 16) * (b >> 16)));                                            \
    }
TE_PAIRS(i32x2, u32x2)
/* The same added to a sum, which where processors have VNNI is one instruction. */
#define TE_ADD_PAIRS(m, u)                                                                          \
    TE_INLINE m te_add_pairs_##m(m a, m b, m c) { return (m)((u)c + (u)te_pairs_##m(a, b)); }
#define TE_PAIRS_BY(m, lanes, ...)                                                                  \
    TE_INLINE m te_pairs_##m(m a, m b) {                                                            \
        typedef int16_t halves __attribute__((vector_size(lanes * 4)));                             \
        const halves x = (halves)a, y = (halves)b;                                                  \
        return (m)__VA_ARGS__;                                                                      \
    }
#if defined(__wasm_simd128__)
TE_PAIRS_BY(i32x4, 4, __builtin_wasm_dot_s_i32x4_i16x8(x, y))
#elif defined(__SSE2__)
TE_PAIRS_BY(i32x4, 4, __builtin_ia32_pmaddwd128(x, y))
#else
TE_PAIRS(i32x4, u32x4)
#endif
#if defined(__AVX2__)
TE_PAIRS_BY(i32x8, 8, __builtin_ia32_pmaddwd256(x, y))
#else
TE_PAIRS(i32x8, u32x8)
#endif
#if defined(__AVX512BW__) && defined(__clang__)
TE_PAIRS_BY(i32x16, 16, __builtin_ia32_pmaddwd512(x, y))
#elif defined(__AVX512BW__)
TE_PAIRS_BY(i32x16, 16, __builtin_ia32_pmaddwd512_mask(x, y, a, -1))
#else
TE_PAIRS(i32x16, u32x16)
#endif
TE_ADD_PAIRS(i32x2, u32x2)
#if ((defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)) && !defined(__clang__)
#define TE_VNNI
TE_INLINE i32x4 te_add_pairs_i32x4(i32x4 a, i32x4 b, i32x4 c) {
    return (i32x4)__builtin_ia32_vpdpwssd_v4si(c, a, b);
}
TE_INLINE i32x8 te_add_pairs_i32x8(i32x8 a, i32x8 b, i32x8 c) {
    return (i32x8)__builtin_ia32_vpdpwssd_v8si(c, a, b);
}
#else
TE_ADD_PAIRS(i32x4, u32x4)
TE_ADD_PAIRS(i32x8, u32x8)
#endif
#if defined(__AVX512VNNI__) && !defined(__clang__)
TE_INLINE i32x16 te_add_pairs_i32x16(i32x16 a, i32x16 b, i32x16 c) {
    return (i32x16)__builtin_ia32_vpdpwssd_v16si(c, a, b);
}
#else
TE_ADD_PAIRS(i32x16, u32x16)
#endif

/* Of words of four 8-bit integers, unsigned and signed ones: the products, added. Processors without
   VNNI multiply pairs. */
TE_INLINE int32_t te_word_i32(int32_t a, int32_t b, int32_t c, int32_t d) {
    return (int32_t)((a & 255) | (b & 255) << 8 | (c & 255) << 16 | (uint32_t)d << 24);
}
TE_INLINE int32_t te_load_word(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}
TE_INLINE int32_t te_quads_i32(int32_t a, int32_t b) {
    const uint32_t x = (uint32_t)a, y = (uint32_t)b;
    const uint32_t low = (x & 255) * (uint32_t)(int8_t)y + (x >> 8 & 255) * (uint32_t)(int8_t)(y >> 8);
    return (int32_t)(low + (x >> 16 & 255) * (uint32_t)(int8_t)(y >> 16) + (x >> 24) * (uint32_t)(b >> 24));
}
#define TE_QUADS(m, u, lanes)                                                                       \
    TE_INLINE m te_word_##m(m a, m b, m c, m d) {                                                   \
        return (m)(((u)a & 255) | ((u)b & 255) << 8 | ((u)c & 255) << 16 | (u)d << 24);             \
    }                                                                                               \
    TE_INLINE m te_add_split_##m(m a, m b, m c) {                                                   \
        typedef int16_t halves __attribute__((vector_size(lanes * 4)));                             \
        typedef uint16_t whole __attribute__((vector_size(lanes * 4)));                             \
        const m even = (m)((u)a & 0xff00ff), odd = (m)((whole)a >> 8);                              \
        const m low = (m)((halves)((whole)b << 8) >> 8), high = (m)((halves)b >> 8);                \
        return te_add_pairs_##m(odd, high, te_add_pairs_##m(even, low, c));                         \
    }                                                                                               \
    TE_INLINE m te_add_quads_##m(m a, m b, m c);                                                    \
    TE_INLINE m te_quads_##m(m a, m b) { return te_add_quads_##m(a, b, (m){0}); }
TE_QUADS(i32x2, u32x2, 2)
TE_QUADS(i32x4, u32x4, 4)
TE_QUADS(i32x8, u32x8, 8)
TE_QUADS(i32x16, u32x16, 16)
#define TE_ADD_QUADS(m, expression)                                                                 \
    TE_INLINE m te_add_quads_##m(m a, m b, m c) { return (m)expression; }
TE_ADD_QUADS(i32x2, te_add_split_i32x2(a, b, c))
#if defined(TE_VNNI)
TE_ADD_QUADS(i32x4, __builtin_ia32_vpdpbusd_v4si(c, a, b))
TE_ADD_QUADS(i32x8, __builtin_ia32_vpdpbusd_v8si(c, a, b))
#else
TE_ADD_QUADS(i32x4, te_add_split_i32x4(a, b, c))
TE_ADD_QUADS(i32x8, te_add_split_i32x8(a, b, c))
#endif
#if defined(__AVX512VNNI__) && !defined(__clang__)
TE_ADD_QUADS(i32x16, __builtin_ia32_vpdpbusd_v16si(c, a, b))
#else
TE_ADD_QUADS(i32x16, te_add_split_i32x16(a, b, c))
#endif

/* x * 2^k, for t = 1.5 * 2^23 + k and |k| below 254, which the low bits of t have. */
#define TE_SCALE(f, m, u)                                                                           \
    TE_INLINE f te_scale_##f(f x, f t) {                                                            \
        const m k = (m)((u)t - 0x4b400000u), half = k >> 1;                                         \
        return x * (f)((u)(half + 127) << 23) * (f)((u)(k - half + 127) << 23);                     \
    }                                                                                               \
    /* The same for k of at most 0: 2^64 times that is a normal number. */                          \
    TE_INLINE f te_lower_##f(f x, f t) {                                                            \
        return x * (f)(((u)t - (0x4b400000u - 191)) << 23) * 0x1p-64f;                              \
    }
#define TE_SCALE_BY(f, ...)                                                                         \
    TE_INLINE f te_scale_##f(f x, f t) {                                                            \
        const f k = t - 0x1.8p23f;                                                                  \
        return __VA_ARGS__;                                                                         \
    }                                                                                               \
    TE_INLINE f te_lower_##f(f x, f t) { return te_scale_##f(x, t); }
TE_SCALE(f32x2, i32x2, u32x2)
#if defined(__AVX512VL__) && !defined(__clang__)
TE_SCALE_BY(f32x4, __builtin_ia32_scalefps128_mask(x, k, x, -1))
TE_SCALE_BY(f32x8, __builtin_ia32_scalefps256_mask(x, k, x, -1))
TE_SCALE_BY(f32x16, __builtin_ia32_scalefps512_mask(x, k, x, -1, 4))
#else
TE_SCALE(f32x4, i32x4, u32x4)
TE_SCALE(f32x8, i32x8, u32x8)
TE_SCALE(f32x16, i32x16, u32x16)
#endif

/* Mathematics on vectors of float32: at most 2 units in the last place from the true value, and what
   C's functions give for zeros, infinities, NaN and subnormal numbers. The polynomials are those of
   Cephes (S. Moshier) for float32, and Taylor's where the arithmetic is in double. Where a processor's
   vectors are short, a logarithm or a power is faster element by element. */
#if defined(__AVX__) || defined(__ARM_NEON) || defined(__riscv_vector)
#define TE_WIDE 1
#else
#define TE_WIDE 0
#endif
#define TE_MATHEMATICS(f, m, u, d, l, lanes)                                                        \
    typedef double d __attribute__((vector_size(lanes * 8), may_alias));                            \
    typedef int64_t l __attribute__((vector_size(lanes * 8), may_alias));                           \
    TE_INLINE int te_any_##m(m c) {                                                                 \
        uint64_t words[lanes / 2], any = 0;                                                         \
        memcpy(words, &c, sizeof words);                                                            \
        for (int i = 0; i < lanes / 2; i++) any |= words[i];                                        \
        return any != 0;                                                                            \
    }                                                                                               \
    /* e^x = p * 2^k, for t = 1.5 * 2^23 + k. */                                                    \
    TE_INLINE f te_exp_part_##f(f x, f *t) {                                                        \
        *t = te_fma_##f(x, te_splat_##f(1.44269504f), te_splat_##f(0x1.8p23f));                     \
        const f k = *t - 0x1.8p23f;                                                                 \
        f r = te_fma_##f(k, te_splat_##f(-0.693359375f), x);                                        \
        r = te_fma_##f(k, te_splat_##f(2.12194440e-4f), r);                                         \
        f p = te_fma_##f(te_splat_##f(1.9875691500e-4f), r, te_splat_##f(1.3981999507e-3f));        \
        p = te_fma_##f(p, r, te_splat_##f(8.3334519073e-3f));                                       \
        p = te_fma_##f(p, r, te_splat_##f(4.1665795894e-2f));                                       \
        p = te_fma_##f(p, r, te_splat_##f(1.6666665459e-1f));                                       \
        p = te_fma_##f(p, r, te_splat_##f(5.0000001201e-1f));                                       \
        return te_fma_##f(p, r * r, r) + 1.0f;                                                      \
    }                                                                                               \
    /* Beyond the range of floats whatever comes out is replaced at the end. */                     \
    TE_INLINE f te_exp_##f(f x) {                                                                   \
        f t, y = te_exp_part_##f(x, &t);                                                            \
        y = te_select_##f(x > 88.72283f, te_splat_##f(INFINITY), te_scale_##f(y, t));               \
        return (f)((m)y & ~(x < -104.0f));                                                          \
    }                                                                                               \
    /* The same for x <= 0. */                                                                      \
    TE_INLINE f te_fall_##f(f x) {                                                                  \
        f t, y = te_exp_part_##f(x, &t);                                                            \
        y = te_lower_##f(y, t);                                                                     \
        return (f)((m)y & ~(x < -104.0f));                                                          \
    }                                                                                               \
    /* For x <= 0; 0 below the normal numbers. */                                                   \
    TE_INLINE f te_decay_##f(f x) {                                                                 \
        f t, y = te_exp_part_##f(x, &t);                                                            \
        y = y * (f)(((u)t - (0x4b400000u - 127)) << 23);                                            \
        return (f)((m)y & ~(x < -87.33654f));                                                       \
    }                                                                                               \
    TE_INLINE f te_log_##f(f x) {                                                                   \
        if (!TE_WIDE) { TE_EACH(f, lanes, logf(x[i])); }                                            \
        const m tiny = x < 0x1p-126f;                                                               \
        const f y = te_select_##f(tiny, x * 0x1p23f, x);                                            \
        m e = (((m)y >> 23) & 255) - 126 - (tiny & 23);                                             \
        f z = (f)(((m)y & 0x007fffff) | 0x3f000000);                                                \
        const m low = z < 0.707106781186547524f;                                                    \
        e += low;                                                                                   \
        z = te_select_##f(low, z + z, z) - 1.0f;                                                    \
        const f n = __builtin_convertvector(e, f), s = z * z;                                       \
        f p = 7.0376836292e-2f * z - 1.1514610310e-1f;                                              \
        p = p * z + 1.1676998740e-1f;                                                               \
        p = p * z - 1.2420140846e-1f;                                                               \
        p = p * z + 1.4249322787e-1f;                                                               \
        p = p * z - 1.6668057665e-1f;                                                               \
        p = p * z + 2.0000714765e-1f;                                                               \
        p = p * z - 2.4999993993e-1f;                                                               \
        p = p * z + 3.3333331174e-1f;                                                               \
        f r = p * z * s - 2.12194440e-4f * n - 0.5f * s + z + 0.693359375f * n;                     \
        r = te_select_##f(x == INFINITY, x, r);                                                     \
        r = te_select_##f((x < 0.0f) | (x != x), te_splat_##f(NAN), r);                             \
        return te_select_##f(x == 0.0f, te_splat_##f(-INFINITY), r);                                \
    }                                                                                               \
    TE_INLINE f te_tanh_##f(f x) {                                                                  \
        const f size = te_abs_##f(x), z = x * x;                                                    \
        const f large = 1.0f - 2.0f / (te_exp_##f(size + size) + 1.0f);                             \
        f p = -5.70498872745e-3f * z + 2.06390887954e-2f;                                           \
        p = p * z - 5.37397155531e-2f;                                                              \
        p = p * z + 1.33314422036e-1f;                                                              \
        p = p * z - 3.33332819422e-1f;                                                              \
        const f y = te_select_##f(size < 0.625f, p * z * size + size, large);                       \
        return (f)((m)y | ((m)x & INT32_MIN));                                                      \
    }                                                                                               \
    /* sin(x) of quarter 0, cos(x) of quarter 1; |x| below 2^20, in double. */                      \
    TE_INLINE f te_wave_##f(f x, int64_t quarter) {                                                 \
        const d y = __builtin_convertvector(x, d);                                                  \
        const d k = (y * 0x1.45f306dc9c883p-1 + 0x1.8p52) - 0x1.8p52;                               \
        const d r = (y - k * 0x1.921fb544p0) - k * 0x1.0b4611a626331p-34;                           \
        const l q = __builtin_convertvector(k, l) + quarter;                                        \
        const d s = r * r;                                                                          \
        d a = s * (1.0 / 362880) - 1.0 / 5040;                                                      \
        a = a * s + 1.0 / 120;                                                                      \
        a = a * s - 1.0 / 6;                                                                        \
        a = a * s * r + r;                                                                          \
        d b = s * (-1.0 / 3628800) + 1.0 / 40320;                                                   \
        b = b * s - 1.0 / 720;                                                                      \
        b = b * s + 1.0 / 24;                                                                       \
        b = b * s - 0.5;                                                                            \
        b = b * s + 1.0;                                                                            \
        const l odd = -(q & 1), sign = (q & 2) << 62;                                               \
        const l bits = (odd & (l)b) | (~odd & (l)a);                                                \
        return __builtin_convertvector((d)(bits ^ sign), f);                                        \
    }                                                                                               \
    TE_INLINE f te_sin_##f(f x) {                                                                   \
        if (te_any_##m(~(te_abs_##f(x) < 0x1p20f))) { TE_EACH(f, lanes, sinf(x[i])); }              \
        return te_select_##f(x == 0.0f, x, te_wave_##f(x, 0));                                      \
    }                                                                                               \
    TE_INLINE f te_cos_##f(f x) {                                                                   \
        if (te_any_##m(~(te_abs_##f(x) < 0x1p20f))) { TE_EACH(f, lanes, cosf(x[i])); }              \
        return te_wave_##f(x, 1);                                                                   \
    }                                                                                               \
    /* 2^(y log2 x) in double; what is not of finite numbers and x > 0 is C's. */                   \
    TE_INLINE f te_pow_##f(f x, f w) {                                                              \
        const m usual = (x > 0.0f) & (x < INFINITY) & (te_abs_##f(w) < INFINITY);                   \
        if (!TE_WIDE || te_any_##m(~usual)) { TE_EACH(f, lanes, powf(x[i], w[i])); }                \
        const d base = __builtin_convertvector(x, d);                                               \
        l e = ((l)base >> 52) - 1022;                                                               \
        d z = (d)(((l)base & 0x000fffffffffffff) | 0x3fe0000000000000);                             \
        const l low = z < 0.707106781186547524;                                                     \
        e += low;                                                                                   \
        z = (d)((l)z + (low & 0x0010000000000000));                                                 \
        const d s = (z - 1.0) / (z + 1.0), u = s * s;                                               \
        d a = u * (1.0 / 15) + 1.0 / 13;                                                            \
        a = a * u + 1.0 / 11;                                                                       \
        a = a * u + 1.0 / 9;                                                                        \
        a = a * u + 1.0 / 7;                                                                        \
        a = a * u + 1.0 / 5;                                                                        \
        a = a * u + 1.0 / 3;                                                                        \
        a = (a * u * s + s) * 0x1.71547652b82fep1;                                                  \
        d t = __builtin_convertvector(w, d) * (__builtin_convertvector(e, d) + a);                  \
        const l high = t > 1000.0, deep = t < -1000.0;                                              \
        t = (d)((high & (l)(t - t + 1000.0)) | (deep & (l)(t - t - 1000.0)) | (~(high | deep) & (l)t)); \
        const d k = (t + 0x1.8p52) - 0x1.8p52, r = (t - k) * 0x1.62e42fefa39efp-1;                  \
        d p = r * (1.0 / 3628800) + 1.0 / 362880;                                                   \
        p = p * r + 1.0 / 40320;                                                                    \
        p = p * r + 1.0 / 5040;                                                                     \
        p = p * r + 1.0 / 720;                                                                      \
        p = p * r + 1.0 / 120;                                                                      \
        p = p * r + 1.0 / 24;                                                                       \
        p = p * r + 1.0 / 6;                                                                        \
        p = p * r + 0.5;                                                                            \
        p = p * r + 1.0;                                                                            \
        p = p * r + 1.0;                                                                            \
        const d scale = (d)((__builtin_convertvector(k, l) + 1023) << 52);                          \
        return __builtin_convertvector(p * scale, f);                                               \
    }
TE_MATHEMATICS(f32x2, i32x2, u32x2, f64x2, i64x2, 2)
TE_MATHEMATICS(f32x4, i32x4, u32x4, f64x4, i64x4, 4)
TE_MATHEMATICS(f32x8, i32x8, u32x8, f64x8, i64x8, 8)
TE_MATHEMATICS(f32x16, i32x16, u32x16, f64x16, i64x16, 16)

/* Narrow elements on their way from and to memory, by steps `h` of at most twice the width: of more
   gcc makes a move for each lane, where it is not told the instruction. clip: the narrow value of a
   float, as an int32. */
#define TE_NARROW_TYPE(n, type, bytes, lanes)                                                       \
    typedef type n __attribute__((vector_size(lanes * bytes), may_alias));                          \
    TE_INLINE n te_load_##n(const void *p) {                                                        \
        n x;                                                                                        \
        memcpy(&x, p, sizeof x);                                                                    \
        return x;                                                                                   \
    }                                                                                               \
    TE_INLINE void te_store_##n(void *p, n x) { memcpy(p, &x, sizeof x); }                          \
    TE_INLINE n te_splat_##n(type x) { return x - (n){0}; }
#define TE_NARROW_TYPES(lanes)                                                                      \
    TE_NARROW_TYPE(i16x##lanes, int16_t, 2, lanes)                                                  \
    TE_NARROW_TYPE(u16x##lanes, uint16_t, 2, lanes)                                                 \
    TE_NARROW_TYPE(i8x##lanes, int8_t, 1, lanes)                                                    \
    TE_NARROW_TYPE(u8x##lanes, uint8_t, 1, lanes)
TE_NARROW_TYPES(2)
TE_NARROW_TYPES(4)
TE_NARROW_TYPES(8)
TE_NARROW_TYPES(16)
#define TE_STEP(x, h, to) __builtin_convertvector(__builtin_convertvector(x, h), to)
#define TE_STEPS(n, h, m)                                                                           \
    TE_INLINE m te_widen_##n(n x) { return TE_STEP(x, h, m); }                                      \
    TE_INLINE n te_narrow_##n(m x) { return TE_STEP(x, h, n); }
#define TE_STEPS_OF(lanes)                                                                          \
    TE_STEPS(i16x##lanes, i16x##lanes, i32x##lanes)                                                 \
    TE_STEPS(u16x##lanes, u16x##lanes, i32x##lanes)
#define TE_STEPS_OF_BYTES(lanes)                                                                    \
    TE_STEPS(i8x##lanes, i16x##lanes, i32x##lanes)                                                  \
    TE_STEPS(u8x##lanes, u16x##lanes, i32x##lanes)
TE_STEPS_OF(2)
TE_STEPS_OF(4)
TE_STEPS_OF(8)
TE_STEPS_OF(16)
TE_STEPS_OF_BYTES(2)
TE_STEPS_OF_BYTES(4)
#if defined(__AVX2__) && !defined(__clang__)
typedef char te_bytes __attribute__((vector_size(16)));
typedef long long te_halves __attribute__((vector_size(16)));
#if defined(__AVX512VL__)
#define TE_NARROWED(x, h, n) __builtin_ia32_pmovdb256_mask(x, (te_bytes){0}, -1)
#else
#define TE_NARROWED(x, h, n) (te_halves){(long long)TE_STEP(x, h, n), 0}
#endif
#define TE_BYTES_OF_8(n, h, instruction)                                                            \
    TE_INLINE i32x8 te_widen_##n(n x) {                                                             \
        return (i32x8)instruction((te_bytes)(te_halves){(long long)x, 0});                          \
    }                                                                                               \
    TE_INLINE n te_narrow_##n(i32x8 x) { return (n)((te_halves)TE_NARROWED(x, h, n))[0]; }
TE_BYTES_OF_8(i8x8, i16x8, __builtin_ia32_pmovsxbd256)
TE_BYTES_OF_8(u8x8, u16x8, __builtin_ia32_pmovzxbd256)
#else
TE_STEPS_OF_BYTES(8)
#endif
#if defined(__AVX512F__) && !defined(__clang__)
#define TE_BYTES_OF_16(n, instruction)                                                              \
    TE_INLINE i32x16 te_widen_##n(n x) {                                                            \
        return (i32x16)instruction((te_bytes)x, (i32x16){0}, -1);                                   \
    }                                                                                               \
    TE_INLINE n te_narrow_##n(i32x16 x) {                                                           \
        return (n)__builtin_ia32_pmovdb512_mask(x, (te_bytes){0}, -1);                              \
    }
TE_BYTES_OF_16(i8x16, __builtin_ia32_pmovsxbd512_mask)
TE_BYTES_OF_16(u8x16, __builtin_ia32_pmovzxbd512_mask)
#else
TE_STEPS_OF_BYTES(16)
#endif
#define TE_NARROW(n, low, high, f, m, u)                                                            \
    TE_INLINE m te_##n##_to_##m(n x) { return te_widen_##n(x); }                                    \
    TE_INLINE u te_##n##_to_##u(n x) { return (u)te_widen_##n(x); }                                 \
    TE_INLINE f te_##n##_to_##f(n x) { return __builtin_convertvector(te_widen_##n(x), f); }        \
    TE_INLINE n te_##m##_to_##n(m x) { return te_narrow_##n(x); }                                   \
    TE_INLINE n te_##u##_to_##n(u x) { return te_narrow_##n((m)x); }                                \
    TE_INLINE m te_##f##_clip_##n(f x) {                                                            \
        const f above = te_select_##f(x > (float)low, x, te_splat_##f(low));                        \
        const f inside = te_select_##f(above < (float)high, above, te_splat_##f(high));             \
        return __builtin_convertvector(inside, m) & (x == x);                                       \
    }                                                                                               \
    TE_INLINE n te_##f##_to_##n(f x) { return te_narrow_##n(te_##f##_clip_##n(x)); }
#define TE_NARROWS(lanes)                                                                           \
    TE_NARROW(i16x##lanes, INT16_MIN, INT16_MAX, f32x##lanes, i32x##lanes, u32x##lanes)             \
    TE_NARROW(u16x##lanes, 0, UINT16_MAX, f32x##lanes, i32x##lanes, u32x##lanes)                    \
    TE_NARROW(i8x##lanes, INT8_MIN, INT8_MAX, f32x##lanes, i32x##lanes, u32x##lanes)                \
    TE_NARROW(u8x##lanes, 0, UINT8_MAX, f32x##lanes, i32x##lanes, u32x##lanes)
TE_NARROWS(2)
TE_NARROWS(4)
TE_NARROWS(8)
TE_NARROWS(16)

/* Halves, likewise. */
#if defined(__FLT16_MANT_DIG__) || defined(__wasm__)
#define TE_HALVES(h, f, m, u, lanes)                                                                \
    typedef _Float16 h __attribute__((vector_size(lanes * 2), may_alias));                          \
    TE_INLINE h te_load_##h(const void *p) {                                                        \
        h x;                                                                                        \
        memcpy(&x, p, sizeof x);                                                                    \
        return x;                                                                                   \
    }                                                                                               \
    TE_INLINE void te_store_##h(void *p, h x) { memcpy(p, &x, sizeof x); }                          \
    TE_INLINE h te_splat_##h(TE_HALF x) { TE_EACH(h, lanes, (_Float16)x); }                         \
    TE_INLINE h te_##f##_to_##h(f x) { TE_EACH(h, lanes, (_Float16)x[i]); }                         \
    TE_INLINE h te_##m##_to_##h(m x) { TE_EACH(h, lanes, (_Float16)x[i]); }                         \
    TE_INLINE h te_##u##_to_##h(u x) { TE_EACH(h, lanes, (_Float16)x[i]); }                         \
    TE_INLINE f te_##h##_to_##f(h x) { TE_EACH(f, lanes, (float)x[i]); }                            \
    TE_INLINE m te_##h##_to_##m(h x) { TE_EACH(m, lanes, te_to_int32(x[i])); }                      \
    TE_INLINE u te_##h##_to_##u(h x) { TE_EACH(u, lanes, te_to_uint32(x[i])); }
TE_HALVES(f16x2, f32x2, i32x2, u32x2, 2)
TE_HALVES(f16x4, f32x4, i32x4, u32x4, 4)
TE_HALVES(f16x8, f32x8, i32x8, u32x8, 8)
TE_HALVES(f16x16, f32x16, i32x16, u32x16, 16)
#endif
