// k0: split range=2 factor=2 outer=6; to range=7 kind=vector; split range=0 factor=4 outer=8; to range=9 kind=upcast; to range=5 kind=unroll; to range=1 kind=grid; to range=6 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    const float *restrict b3 = buffers[3];
    if (end > 98) end = 98;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g1 = group / 7;
        const int32_t g6 = group % 7;
        const int32_t i0 = g6 * 2;
        const int32_t i1 = (g1 * 14) + i0;
        const int32_t v0 = 0 < i0;
        const int32_t v1 = (i0 + 2) < 14;
        for (int32_t r8 = 0; r8 < 4; r8++) {
            const int32_t i2 = r8 * 288;
            f32x2 acc0 = te_splat_f32x2(0.0f);
            f32x2 acc1 = te_splat_f32x2(0.0f);
            f32x2 acc2 = te_splat_f32x2(0.0f);
            f32x2 acc3 = te_splat_f32x2(0.0f);
            for (int32_t r3 = 0; r3 < 8; r3++) {
                const int32_t i3 = i1 + (r3 * 196);
                const int32_t i4 = i2 + (r3 * 9);
                for (int32_t r4 = 0; r4 < 3; r4++) {
                    const int32_t i5 = i3 + (r4 * 14);
                    const int32_t i6 = g1 + r4;
                    const int32_t v2 = (0 < i6) & ((i6 + (-1)) < 14);
                    const int32_t i7 = i5 + (-14);
                    const f32x2 v3 = (f32x2){(v2 & v0) ? b1[i5 + (-15)] : 0, v2 ? b1[i7] : 0};
                    const int32_t i8 = i4 + (r4 * 3);
                    acc0 = acc0 + (v3 * te_splat_f32x2(b2[i8]));
                    const f32x2 x0 = v2 ? te_load_f32x2(b1 + i7) : (f32x2){0};
                    acc0 = acc0 + (x0 * te_splat_f32x2(b2[i8 + 1]));
                    const f32x2 v4 = (f32x2){v2 ? b1[i5 + (-13)] : 0, (v2 & v1) ? b1[i5 + (-12)] : 0};
                    acc0 = acc0 + (v4 * te_splat_f32x2(b2[i8 + 2]));
                    acc1 = acc1 + (v3 * te_splat_f32x2(b2[i8 + 72]));
                    acc1 = acc1 + (x0 * te_splat_f32x2(b2[i8 + 73]));
                    acc1 = acc1 + (v4 * te_splat_f32x2(b2[i8 + 74]));
                    acc2 = acc2 + (v3 * te_splat_f32x2(b2[i8 + 144]));
                    acc2 = acc2 + (x0 * te_splat_f32x2(b2[i8 + 145]));
                    acc2 = acc2 + (v4 * te_splat_f32x2(b2[i8 + 146]));
                    acc3 = acc3 + (v3 * te_splat_f32x2(b2[i8 + 216]));
                    acc3 = acc3 + (x0 * te_splat_f32x2(b2[i8 + 217]));
                    acc3 = acc3 + (v4 * te_splat_f32x2(b2[i8 + 218]));
                }
            }
            const int32_t i9 = r8 * 4;
            const f32x2 v5 = acc0 + te_splat_f32x2(b3[i9]);
            const int32_t i10 = i1 + (r8 * 784);
            te_store_f32x2(b0 + i10, te_select_f32x2(v5 < te_splat_f32x2(0.0f), te_splat_f32x2(0.0f), v5));
            const f32x2 v6 = acc1 + te_splat_f32x2(b3[i9 + 1]);
            te_store_f32x2(b0 + (i10 + 196), te_select_f32x2(v6 < te_splat_f32x2(0.0f), te_splat_f32x2(0.0f), v6));
            const f32x2 v7 = acc2 + te_splat_f32x2(b3[i9 + 2]);
            te_store_f32x2(b0 + (i10 + 392), te_select_f32x2(v7 < te_splat_f32x2(0.0f), te_splat_f32x2(0.0f), v7));
            const f32x2 v8 = acc3 + te_splat_f32x2(b3[i9 + 3]);
            te_store_f32x2(b0 + (i10 + 588), te_select_f32x2(v8 < te_splat_f32x2(0.0f), te_splat_f32x2(0.0f), v8));
        }
    }
}
