/* Helpers of kernels for reference values: vectors of four doubles; masks are vectors of int32, as
   everywhere. Lane by lane they give what the functions of scalars give. */
#define TE_FOUR(type, function) ((type){function(x[0]), function(x[1]), function(x[2]), function(x[3])})
#define TE_FOUR_PAIRS(function) \
    ((f64x4){function(x[0], y[0]), function(x[1], y[1]), function(x[2], y[2]), function(x[3], y[3])})

TE_INLINE f64x4 te_splat_f64x4(double x) { return x - (f64x4){0}; }
TE_INLINE i32x4 te_i64x4_to_i32x4(i64x4 x) { return __builtin_convertvector(x, i32x4); }
TE_INLINE f64x4 te_choose_f64x4(i64x4 c, f64x4 a, f64x4 b) {
    return (f64x4)((c & (i64x4)a) | (~c & (i64x4)b));
}
TE_INLINE f64x4 te_select_f64x4(i32x4 c, f64x4 a, f64x4 b) {
    return te_choose_f64x4(__builtin_convertvector(c, i64x4), a, b);
}
TE_INLINE f64x4 te_max_f64x4(f64x4 a, f64x4 b) { return te_choose_f64x4((a < b) | (b != b), b, a); }
TE_INLINE f64x4 te_min_f64x4(f64x4 a, f64x4 b) { return te_choose_f64x4((a > b) | (b != b), b, a); }
TE_INLINE i32x4 te_isnan_f64x4(f64x4 x) { return te_i64x4_to_i32x4(x != x); }
TE_INLINE f64x4 te_abs_f64x4(f64x4 x) { return (f64x4)((i64x4)x & INT64_MAX); }
/* x = k ln 2 + r: Taylor's series of e^r, |r| <= 0.35, to a part of 2^-57, times 2^k in two steps. */
TE_INLINE f64x4 te_exp_f64x4(f64x4 x) {
    const f64x4 some = te_choose_f64x4(x > 800.0, (f64x4){0} + 800.0, x);
    const f64x4 most = te_choose_f64x4(some < -800.0, (f64x4){0} - 800.0, some);
    const f64x4 t = most * 0x1.71547652b82fep0 + 0x1.8p52, k = t - 0x1.8p52;
    const f64x4 r = (most - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
    f64x4 p = r * (1.0 / 6227020800) + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    const i64x4 n = (i64x4)t - (i64x4)((f64x4){0} + 0x1.8p52), half = n >> 1;
    return p * (f64x4)((half + 1023) << 52) * (f64x4)((n - half + 1023) << 52);
}
TE_INLINE f64x4 te_log_f64x4(f64x4 x) { return TE_FOUR(f64x4, log); }
TE_INLINE f64x4 te_sqrt_f64x4(f64x4 x) { return TE_FOUR(f64x4, sqrt); }
TE_INLINE f64x4 te_sin_f64x4(f64x4 x) { return TE_FOUR(f64x4, sin); }
TE_INLINE f64x4 te_cos_f64x4(f64x4 x) { return TE_FOUR(f64x4, cos); }
TE_INLINE f64x4 te_tanh_f64x4(f64x4 x) { return TE_FOUR(f64x4, tanh); }
TE_INLINE f64x4 te_floor_f64x4(f64x4 x) { return TE_FOUR(f64x4, floor); }
TE_INLINE f64x4 te_trunc_f64x4(f64x4 x) { return TE_FOUR(f64x4, trunc); }
TE_INLINE f64x4 te_rint_f64x4(f64x4 x) { return TE_FOUR(f64x4, rint); }
TE_INLINE f64x4 te_pow_f64x4(f64x4 x, f64x4 y) { return TE_FOUR_PAIRS(pow); }
TE_INLINE f64x4 te_fmod_f64x4(f64x4 x, f64x4 y) { return TE_FOUR_PAIRS(fmod); }

/* Floats to integers truncate and saturate; NaN gives 0. */
#define TE_FP64_FROM(t) \
    TE_INLINE f64x4 te_##t##x4_to_f64x4(t##x4 x) { return __builtin_convertvector(x, f64x4); }
#define TE_FP64_BOTH(t, wide, low, high) \
    TE_FP64_FROM(t) \
    TE_INLINE t##x4 te_f64x4_to_##t##x4(f64x4 x) { \
        const f64x4 above = te_choose_f64x4(x > (double)low, x, te_splat_f64x4(low)); \
        const f64x4 inside = te_choose_f64x4(above < (double)high, above, te_splat_f64x4(high)); \
        const f64x4 known = te_choose_f64x4(x == x, inside, (f64x4){0}); \
        return __builtin_convertvector(__builtin_convertvector(known, wide), t##x4); \
    }
TE_FP64_BOTH(i8, i32x4, INT8_MIN, INT8_MAX)
TE_FP64_BOTH(i16, i32x4, INT16_MIN, INT16_MAX)
TE_FP64_BOTH(i32, i32x4, INT32_MIN, INT32_MAX)
TE_FP64_BOTH(u8, i32x4, 0, UINT8_MAX)
TE_FP64_BOTH(u16, i32x4, 0, UINT16_MAX)
TE_FP64_BOTH(u32, i64x4, 0, UINT32_MAX)
TE_FP64_FROM(f32)
TE_INLINE f32x4 te_f64x4_to_f32x4(f64x4 x) { return __builtin_convertvector(x, f32x4); }
#ifdef __FLT16_MANT_DIG__
TE_INLINE f64x4 te_f16x4_to_f64x4(f16x4 x) { return TE_FOUR(f64x4, (double)); }
TE_INLINE f16x4 te_f64x4_to_f16x4(f64x4 x) { return TE_FOUR(f16x4, (_Float16)); }
#endif
