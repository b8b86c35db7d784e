// k0: split range=0 factor=8 outer=1; to range=2 kind=vector; to range=1 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 18) end = 18;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g1 = group;
        const int32_t i0 = g1 * 8;
        const f32x8 x0 = te_load_f32x8(b1 + i0);
        te_store_f32x8(b0 + i0, te_select_f32x8(x0 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), x0));
    }
}

// k1: overlap range=0 factor=8 outer=1; to range=2 kind=vector; to range=1 kind=grid
void k1(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 14) end = 14;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g1 = group;
        const int32_t i0 = te_min_i32(g1 * 8, 100);
        te_store_f32x8(b0 + (i0 + 144), te_load_f32x8(b1 + i0));
    }
}

// k2: split range=0 factor=8 outer=1; to range=2 kind=vector; to range=1 kind=grid
void k2(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 18) end = 18;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g1 = group;
        const int32_t i0 = g1 * 8;
        te_store_f32x8(b0 + (i0 + 252), te_load_f32x8(b1 + i0) * te_splat_f32x8(2.0f));
    }
}
