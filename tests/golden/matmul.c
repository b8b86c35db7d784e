// k0: split range=1 factor=8 outer=3; to range=4 kind=vector; split range=0 factor=4 outer=5; to range=6 kind=upcast; split range=2 factor=4 outer=7; to range=8 kind=unroll; to range=3 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    const float *restrict b3 = buffers[3];
    if (end > 6) end = 6;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g3 = group;
        const int32_t i0 = g3 * 8;
        const f32x8 x0 = te_load_f32x8(b3 + i0);
        for (int32_t r5 = 0; r5 < 8; r5++) {
            const int32_t i1 = r5 * 256;
            f32x8 acc0 = te_splat_f32x8(0.0f);
            f32x8 acc1 = te_splat_f32x8(0.0f);
            f32x8 acc2 = te_splat_f32x8(0.0f);
            f32x8 acc3 = te_splat_f32x8(0.0f);
            for (int32_t r7 = 0; r7 < 16; r7++) {
                const int32_t i2 = i1 + (r7 * 4);
                const int32_t i3 = i0 + (r7 * 192);
                const f32x8 x1 = te_load_f32x8(b2 + i3);
                acc0 = acc0 + (te_splat_f32x8(b1[i2]) * x1);
                const f32x8 x2 = te_load_f32x8(b2 + (i3 + 48));
                acc0 = acc0 + (te_splat_f32x8(b1[i2 + 1]) * x2);
                const f32x8 x3 = te_load_f32x8(b2 + (i3 + 96));
                acc0 = acc0 + (te_splat_f32x8(b1[i2 + 2]) * x3);
                const f32x8 x4 = te_load_f32x8(b2 + (i3 + 144));
                acc0 = acc0 + (te_splat_f32x8(b1[i2 + 3]) * x4);
                acc1 = acc1 + (te_splat_f32x8(b1[i2 + 64]) * x1);
                acc1 = acc1 + (te_splat_f32x8(b1[i2 + 65]) * x2);
                acc1 = acc1 + (te_splat_f32x8(b1[i2 + 66]) * x3);
                acc1 = acc1 + (te_splat_f32x8(b1[i2 + 67]) * x4);
                acc2 = acc2 + (te_splat_f32x8(b1[i2 + 128]) * x1);
                acc2 = acc2 + (te_splat_f32x8(b1[i2 + 129]) * x2);
                acc2 = acc2 + (te_splat_f32x8(b1[i2 + 130]) * x3);
                acc2 = acc2 + (te_splat_f32x8(b1[i2 + 131]) * x4);
                acc3 = acc3 + (te_splat_f32x8(b1[i2 + 192]) * x1);
                acc3 = acc3 + (te_splat_f32x8(b1[i2 + 193]) * x2);
                acc3 = acc3 + (te_splat_f32x8(b1[i2 + 194]) * x3);
                acc3 = acc3 + (te_splat_f32x8(b1[i2 + 195]) * x4);
            }
            const f32x8 v0 = acc0 + x0;
            const int32_t i4 = i0 + (r5 * 192);
            te_store_f32x8(b0 + i4, te_select_f32x8(v0 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v0));
            const f32x8 v1 = acc1 + x0;
            te_store_f32x8(b0 + (i4 + 48), te_select_f32x8(v1 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v1));
            const f32x8 v2 = acc2 + x0;
            te_store_f32x8(b0 + (i4 + 96), te_select_f32x8(v2 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v2));
            const f32x8 v3 = acc3 + x0;
            te_store_f32x8(b0 + (i4 + 144), te_select_f32x8(v3 < te_splat_f32x8(0.0f), te_splat_f32x8(0.0f), v3));
        }
    }
}
