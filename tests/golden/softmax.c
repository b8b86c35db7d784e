// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; split range=3 factor=4 outer=8; to range=9 kind=unroll; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 12) end = 12;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 100;
        float acc0 = (-INFINITY);
        for (int32_t r6 = 0; r6 < 25; r6++) {
            const int32_t i1 = i0 + (r6 * 4);
            acc0 = te_max_f32(acc0, b1[i1]);
            acc0 = te_max_f32(acc0, b1[i1 + 1]);
            acc0 = te_max_f32(acc0, b1[i1 + 2]);
            acc0 = te_max_f32(acc0, b1[i1 + 3]);
        }
        const f32x4 v0 = te_splat_f32x4(acc0);
        float acc1 = 0.0f;
        for (int32_t r8 = 0; r8 < 25; r8++) {
            const int32_t i2 = i0 + (r8 * 4);
            acc1 = acc1 + te_exp_f32(b1[i2] - acc0);
            acc1 = acc1 + te_exp_f32(b1[i2 + 1] - acc0);
            acc1 = acc1 + te_exp_f32(b1[i2 + 2] - acc0);
            acc1 = acc1 + te_exp_f32(b1[i2 + 3] - acc0);
        }
        const f32x4 v1 = te_splat_f32x4(acc1);
        for (int32_t r4 = 0; r4 < 25; r4++) {
            const int32_t i3 = i0 + (r4 * 4);
            te_store_f32x4(b0 + i3, te_exp_f32x4(te_load_f32x4(b1 + i3) - v0) / v1);
        }
    }
}
