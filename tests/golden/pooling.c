// k0: to range=4 kind=unroll; to range=0 kind=grid; to range=1 kind=grid
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
        for (int32_t r2 = 0; r2 < 5; r2++) {
            const int32_t i2 = i0 + (r2 * 2);
            float acc0 = (-INFINITY);
            for (int32_t r3 = 0; r3 < 3; r3++) {
                const int32_t i3 = i2 + (r3 * 12);
                acc0 = te_max_f32(acc0, b1[i3]);
                acc0 = te_max_f32(acc0, b1[i3 + 1]);
                acc0 = te_max_f32(acc0, b1[i3 + 2]);
            }
            b0[i1 + r2] = acc0;
        }
    }
}

// k1: to range=0 kind=vector; split range=1 factor=4 outer=2; to range=3 kind=unroll
void k1(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 1) end = 1;
    for (int32_t group = begin; group < end; group++) {
        f32x8 acc0 = te_splat_f32x8(0.0f);
        for (int32_t r2 = 0; r2 < 36; r2++) {
            const int32_t i0 = r2 * 4;
            acc0 = acc0 + (f32x8){b1[i0], b1[i0 + 144], b1[i0 + 288], b1[i0 + 432], b1[i0 + 576], b1[i0 + 720], b1[i0 + 864], b1[i0 + 1008]};
            acc0 = acc0 + (f32x8){b1[i0 + 1], b1[i0 + 145], b1[i0 + 289], b1[i0 + 433], b1[i0 + 577], b1[i0 + 721], b1[i0 + 865], b1[i0 + 1009]};
            acc0 = acc0 + (f32x8){b1[i0 + 2], b1[i0 + 146], b1[i0 + 290], b1[i0 + 434], b1[i0 + 578], b1[i0 + 722], b1[i0 + 866], b1[i0 + 1010]};
            acc0 = acc0 + (f32x8){b1[i0 + 3], b1[i0 + 147], b1[i0 + 291], b1[i0 + 435], b1[i0 + 579], b1[i0 + 723], b1[i0 + 867], b1[i0 + 1011]};
        }
        te_store_f32x8(b0 + 0, acc0 / te_splat_f32x8(144.0f));
    }
}
