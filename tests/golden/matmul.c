// k0: split range=4 factor=8 outer=5; to range=6 kind=vector; split range=0 factor=4 outer=7; to range=8 kind=upcast; reorder range=5 number=9; to range=9 kind=upcast; reorder range=7 number=10; to range=3 kind=grid; to range=10 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    const float *restrict b3 = buffers[3];
    if (end > 16) end = 16;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g3 = group / 8;
        const int32_t g10 = group % 8;
        const int32_t i0 = g10 * 256;
        const int32_t i1 = g3 * 1536;
        f32x8 acc0 = te_splat_f32x8(0.0f);
        f32x8 acc1 = te_splat_f32x8(0.0f);
        f32x8 acc2 = te_splat_f32x8(0.0f);
        f32x8 acc3 = te_splat_f32x8(0.0f);
        f32x8 acc4 = te_splat_f32x8(0.0f);
        f32x8 acc5 = te_splat_f32x8(0.0f);
        f32x8 acc6 = te_splat_f32x8(0.0f);
        f32x8 acc7 = te_splat_f32x8(0.0f);
        f32x8 acc8 = te_splat_f32x8(0.0f);
        f32x8 acc9 = te_splat_f32x8(0.0f);
        f32x8 acc10 = te_splat_f32x8(0.0f);
        f32x8 acc11 = te_splat_f32x8(0.0f);
        for (int32_t r2 = 0; r2 < 64; r2++) {
            const int32_t i2 = i0 + r2;
            const f32x8 v0 = te_splat_f32x8(b1[i2]);
            const int32_t i3 = i1 + (r2 * 24);
            const f32x8 x0 = te_load_f32x8(b2 + i3);
            acc0 = te_fma_f32x8(v0, x0, acc0);
            const f32x8 x1 = te_load_f32x8(b2 + (i3 + 8));
            acc1 = te_fma_f32x8(v0, x1, acc1);
            const f32x8 x2 = te_load_f32x8(b2 + (i3 + 16));
            acc2 = te_fma_f32x8(v0, x2, acc2);
            const f32x8 v1 = te_splat_f32x8(b1[i2 + 64]);
            acc3 = te_fma_f32x8(v1, x0, acc3);
            acc4 = te_fma_f32x8(v1, x1, acc4);
            acc5 = te_fma_f32x8(v1, x2, acc5);
            const f32x8 v2 = te_splat_f32x8(b1[i2 + 128]);
            acc6 = te_fma_f32x8(v2, x0, acc6);
            acc7 = te_fma_f32x8(v2, x1, acc7);
            acc8 = te_fma_f32x8(v2, x2, acc8);
            const f32x8 v3 = te_splat_f32x8(b1[i2 + 192]);
            acc9 = te_fma_f32x8(v3, x0, acc9);
            acc10 = te_fma_f32x8(v3, x1, acc10);
            acc11 = te_fma_f32x8(v3, x2, acc11);
        }
        const int32_t i4 = g3 * 24;
        const f32x8 x3 = te_load_f32x8(b3 + i4);
        const f32x8 v4 = acc0 + x3;
        const int32_t i5 = i4 + (g10 * 192);
        te_store_f32x8(b0 + i5, te_select_f32x8(v4 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v4));
        const f32x8 x4 = te_load_f32x8(b3 + (i4 + 8));
        const f32x8 v5 = acc1 + x4;
        te_store_f32x8(b0 + (i5 + 8), te_select_f32x8(v5 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v5));
        const f32x8 x5 = te_load_f32x8(b3 + (i4 + 16));
        const f32x8 v6 = acc2 + x5;
        te_store_f32x8(b0 + (i5 + 16), te_select_f32x8(v6 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v6));
        const f32x8 v7 = acc3 + x3;
        te_store_f32x8(b0 + (i5 + 48), te_select_f32x8(v7 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v7));
        const f32x8 v8 = acc4 + x4;
        te_store_f32x8(b0 + (i5 + 56), te_select_f32x8(v8 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v8));
        const f32x8 v9 = acc5 + x5;
        te_store_f32x8(b0 + (i5 + 64), te_select_f32x8(v9 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v9));
        const f32x8 v10 = acc6 + x3;
        te_store_f32x8(b0 + (i5 + 96), te_select_f32x8(v10 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v10));
        const f32x8 v11 = acc7 + x4;
        te_store_f32x8(b0 + (i5 + 104), te_select_f32x8(v11 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v11));
        const f32x8 v12 = acc8 + x5;
        te_store_f32x8(b0 + (i5 + 112), te_select_f32x8(v12 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v12));
        const f32x8 v13 = acc9 + x3;
        te_store_f32x8(b0 + (i5 + 144), te_select_f32x8(v13 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v13));
        const f32x8 v14 = acc10 + x4;
        te_store_f32x8(b0 + (i5 + 152), te_select_f32x8(v14 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v14));
        const f32x8 v15 = acc11 + x5;
        te_store_f32x8(b0 + (i5 + 160), te_select_f32x8(v15 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v15));
    }
}
