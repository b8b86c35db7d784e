// k0: overlap range=2 factor=4 outer=5; to range=6 kind=vector; to range=4 kind=unroll; to range=0 kind=grid; to range=1 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 40) end = 40;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group / 5;
        const int32_t g1 = group % 5;
        const int32_t i0 = (g0 * 144) + (g1 * 24);
        const int32_t i1 = (g0 * 25) + (g1 * 5);
        for (int32_t r5 = 0; r5 < 2; r5++) {
            const int32_t i2 = te_min_i32(r5 * 4, 1);
            const int32_t i3 = i0 + (i2 * 2);
            f32x4 acc0 = te_splat_f32x4(-INFINITY);
            for (int32_t r3 = 0; r3 < 3; r3++) {
                const int32_t i4 = i3 + (r3 * 12);
                const f32x4 x0 = te_load_f32x4(b1 + i4);
                const f32x4 x1 = te_load_f32x4(b1 + (i4 + 4));
                acc0 = te_max_f32x4(acc0, te_permute(i32x4, x0, x1, 0, 2, 4, 6));
                acc0 = te_max_f32x4(acc0, te_permute(i32x4, x0, x1, 1, 3, 5, 7));
                const f32x4 x2 = te_load_f32x4(b1 + (i4 + 2));
                const f32x4 x3 = te_load_f32x4(b1 + (i4 + 5));
                acc0 = te_max_f32x4(acc0, te_permute(i32x4, x2, x3, 0, 2, 5, 7));
            }
            te_store_f32x4(b0 + (i1 + i2), acc0);
        }
    }
}

// k1: peel range=1 multiple=64 rest=2 overlap=False; split range=1 factor=64 outer=3; to range=4 kind=lanes; split range=2 factor=8 outer=5; to range=6 kind=lanes; to range=0 kind=grid
void k1(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 8) end = 8;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 144;
        f32x8 acc0 = te_splat_f32x8(0.0f);
        f32x8 acc1 = te_splat_f32x8(0.0f);
        f32x8 acc2 = te_splat_f32x8(0.0f);
        f32x8 acc3 = te_splat_f32x8(0.0f);
        f32x8 acc4 = te_splat_f32x8(0.0f);
        f32x8 acc5 = te_splat_f32x8(0.0f);
        f32x8 acc6 = te_splat_f32x8(0.0f);
        f32x8 acc7 = te_splat_f32x8(0.0f);
        for (int32_t r3 = 0; r3 < 2; r3++) {
            const int32_t i1 = i0 + (r3 * 64);
            acc0 = acc0 + te_load_f32x8(b1 + i1);
            acc1 = acc1 + te_load_f32x8(b1 + (i1 + 8));
            acc2 = acc2 + te_load_f32x8(b1 + (i1 + 16));
            acc3 = acc3 + te_load_f32x8(b1 + (i1 + 24));
            acc4 = acc4 + te_load_f32x8(b1 + (i1 + 32));
            acc5 = acc5 + te_load_f32x8(b1 + (i1 + 40));
            acc6 = acc6 + te_load_f32x8(b1 + (i1 + 48));
            acc7 = acc7 + te_load_f32x8(b1 + (i1 + 56));
        }
        f32x8 acc8 = te_splat_f32x8(0.0f);
        for (int32_t r5 = 0; r5 < 2; r5++) {
            acc8 = acc8 + te_load_f32x8(b1 + ((i0 + (r5 * 8)) + 128));
        }
        b0[g0] = te_lanes_add_f32x8((((acc0 + acc1) + (acc2 + acc3)) + ((acc4 + acc5) + (acc6 + acc7))) + acc8) / 144.0f;
    }
}
