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
                const int32_t i4 = i3 + r3;
                const float *const p0 = ((0 < i4) & ((i4 + (-1)) < 15)) ? b1 + ((i2 + (r3 * 15)) + (-15)) : (const void *)te_zeros;
                const float x0 = p0[1];
                const float x1 = p0[3];
                const float x2 = p0[5];
                const float x3 = p0[7];
                const float x4 = p0[9];
                const float x5 = p0[11];
                const float x6 = p0[13];
                const int32_t i5 = g0 + (r3 * 48);
                acc0 = te_fma_f32x8((f32x8){0.0f, x0, x1, x2, x3, x4, x5, x6}, te_splat_f32x8(b2[i5]), acc0);
                const f32x8 x7 = te_load_f32x8(p0 + 0);
                const f32x8 x8 = te_load_f32x8(p0 + 7);
                acc0 = te_fma_f32x8(te_permute(i32x8, x7, x8, 0, 2, 4, 6, 9, 11, 13, 15), te_splat_f32x8(b2[i5 + 16]), acc0);
                acc0 = te_fma_f32x8((f32x8){x0, x1, x2, x3, x4, x5, x6, 0.0f}, te_splat_f32x8(b2[i5 + 32]), acc0);
            }
            te_store_f32x8(b0 + (i1 + (r1 * 8)), acc0);
        }
    }
}
