// k0: split range=1 factor=8 outer=4; to range=5 kind=vector; split range=2 factor=32 outer=6; to range=7 kind=lanes; split range=3 factor=32 outer=8; to range=9 kind=lanes; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    if (end > 7) end = 7;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 96;
        f32x8 acc0 = te_splat_f32x8(0.0f);
        f32x8 acc1 = te_splat_f32x8(0.0f);
        f32x8 acc2 = te_splat_f32x8(0.0f);
        f32x8 acc3 = te_splat_f32x8(0.0f);
        for (int32_t r6 = 0; r6 < 3; r6++) {
            const int32_t i1 = i0 + (r6 * 32);
            acc0 = acc0 + te_load_f32x8(b1 + i1);
            acc1 = acc1 + te_load_f32x8(b1 + (i1 + 8));
            acc2 = acc2 + te_load_f32x8(b1 + (i1 + 16));
            acc3 = acc3 + te_load_f32x8(b1 + (i1 + 24));
        }
        const f32x8 v0 = te_splat_f32x8(te_lanes_add_f32x8((acc0 + acc1) + (acc2 + acc3)) / 96.0f);
        f32x8 acc4 = te_splat_f32x8(0.0f);
        f32x8 acc5 = te_splat_f32x8(0.0f);
        f32x8 acc6 = te_splat_f32x8(0.0f);
        f32x8 acc7 = te_splat_f32x8(0.0f);
        for (int32_t r8 = 0; r8 < 3; r8++) {
            const int32_t i2 = i0 + (r8 * 32);
            const f32x8 v1 = te_load_f32x8(b1 + i2) - v0;
            acc4 = te_fma_f32x8(v1, v1, acc4);
            const f32x8 v2 = te_load_f32x8(b1 + (i2 + 8)) - v0;
            acc5 = te_fma_f32x8(v2, v2, acc5);
            const f32x8 v3 = te_load_f32x8(b1 + (i2 + 16)) - v0;
            acc6 = te_fma_f32x8(v3, v3, acc6);
            const f32x8 v4 = te_load_f32x8(b1 + (i2 + 24)) - v0;
            acc7 = te_fma_f32x8(v4, v4, acc7);
        }
        const f32x8 v5 = te_splat_f32x8(te_sqrt_f32((te_lanes_add_f32x8((acc4 + acc5) + (acc6 + acc7)) / 96.0f) + 1e-05f));
        for (int32_t r4 = 0; r4 < 12; r4++) {
            const int32_t i3 = r4 * 8;
            const int32_t i4 = i0 + i3;
            te_store_f32x8(b0 + i4, ((te_load_f32x8(b1 + i4) - v0) / v5) * te_load_f32x8(b2 + i3));
        }
    }
}
