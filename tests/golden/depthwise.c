// k0: to range=2 kind=vector; to range=4 kind=unroll; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    if (end > 12) end = 12;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 225;
        const int32_t i1 = g0 * 64;
        for (int32_t r1 = 0; r1 < 8; r1++) {
            const int32_t i2 = i0 + (r1 * 30);
            const int32_t i3 = r1 * 2;
            f32x8 acc0 = te_splat_f32x8(0.0f);
            for (int32_t r3 = 0; r3 < 3; r3++) {
                const int32_t i4 = i2 + (r3 * 15);
                const int32_t i5 = i3 + r3;
                const int32_t v0 = (0 < i5) & ((i5 + (-1)) < 15);
                const float x0 = v0 ? b1[i4 + (-14)] : 0;
                const float x1 = v0 ? b1[i4 + (-12)] : 0;
                const float x2 = v0 ? b1[i4 + (-10)] : 0;
                const float x3 = v0 ? b1[i4 + (-8)] : 0;
                const float x4 = v0 ? b1[i4 + (-6)] : 0;
                const float x5 = v0 ? b1[i4 + (-4)] : 0;
                const float x6 = v0 ? b1[i4 + (-2)] : 0;
                const int32_t i6 = g0 + (r3 * 48);
                acc0 = te_fma_f32x8((f32x8){0.0f, x0, x1, x2, x3, x4, x5, x6}, te_splat_f32x8(b2[i6]), acc0);
                acc0 = te_fma_f32x8((f32x8){v0 ? b1[i4 + (-15)] : 0, v0 ? b1[i4 + (-13)] : 0, v0 ? b1[i4 + (-11)] : 0, v0 ? b1[i4 + (-9)] : 0, v0 ? b1[i4 + (-7)] : 0, v0 ? b1[i4 + (-5)] : 0, v0 ? b1[i4 + (-3)] : 0, v0 ? b1[i4 + (-1)] : 0}, te_splat_f32x8(b2[i6 + 16]), acc0);
                acc0 = te_fma_f32x8((f32x8){x0, x1, x2, x3, x4, x5, x6, 0.0f}, te_splat_f32x8(b2[i6 + 32]), acc0);
            }
            te_store_f32x8(b0 + (i1 + (r1 * 8)), acc0);
        }
    }
}
