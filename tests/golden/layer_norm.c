// k0: split range=1 factor=8 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; split range=3 factor=4 outer=8; to range=9 kind=unroll; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    if (end > 7) end = 7;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 96;
        float acc0 = 0.0f;
        for (int32_t r6 = 0; r6 < 24; r6++) {
            const int32_t i1 = i0 + (r6 * 4);
            acc0 = acc0 + b1[i1];
            acc0 = acc0 + b1[i1 + 1];
            acc0 = acc0 + b1[i1 + 2];
            acc0 = acc0 + b1[i1 + 3];
        }
        const float v0 = acc0 / 96.0f;
        const f32x8 v1 = te_splat_f32x8(v0);
        float acc1 = 0.0f;
        for (int32_t r8 = 0; r8 < 24; r8++) {
            const int32_t i2 = i0 + (r8 * 4);
            const float v2 = b1[i2] - v0;
            acc1 = acc1 + (v2 * v2);
            const float v3 = b1[i2 + 1] - v0;
            acc1 = acc1 + (v3 * v3);
            const float v4 = b1[i2 + 2] - v0;
            acc1 = acc1 + (v4 * v4);
            const float v5 = b1[i2 + 3] - v0;
            acc1 = acc1 + (v5 * v5);
        }
        const f32x8 v6 = te_splat_f32x8(te_sqrt_f32((acc1 / 96.0f) + 1e-05f));
        for (int32_t r4 = 0; r4 < 12; r4++) {
            const int32_t i3 = r4 * 8;
            const int32_t i4 = i0 + i3;
            te_store_f32x8(b0 + i4, ((te_load_f32x8(b1 + i4) - v1) / v6) * te_load_f32x8(b2 + i3));
        }
    }
}
