// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; peel range=2 multiple=8 rest=6 overlap=True; split range=2 factor=32 outer=7; to range=8 kind=lanes; to range=6 kind=lanes; peel range=3 multiple=8 rest=9 overlap=True; split range=3 factor=16 outer=10; to range=11 kind=lanes; to range=9 kind=lanes; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 12) end = 12;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 100;
        f32x8 acc0 = te_splat_f32x8(-INFINITY);
        f32x8 acc1 = te_splat_f32x8(-INFINITY);
        f32x8 acc2 = te_splat_f32x8(-INFINITY);
        f32x8 acc3 = te_splat_f32x8(-INFINITY);
        for (int32_t r7 = 0; r7 < 3; r7++) {
            const int32_t i1 = i0 + (r7 * 32);
            acc0 = te_max_f32x8(acc0, te_load_f32x8(b1 + i1));
            acc1 = te_max_f32x8(acc1, te_load_f32x8(b1 + (i1 + 8)));
            acc2 = te_max_f32x8(acc2, te_load_f32x8(b1 + (i1 + 16)));
            acc3 = te_max_f32x8(acc3, te_load_f32x8(b1 + (i1 + 24)));
        }
        const i32x8 v0 = (i32x8){-(0), -(0), -(0), -(0), -(1), -(1), -(1), -(1)};
        const f32x8 x0 = te_load_f32x8(b1 + (i0 + 92));
        const float v1 = te_lanes_max_f32x8(te_max_f32x8(te_max_f32x8(te_max_f32x8(acc0, acc1), te_max_f32x8(acc2, acc3)), te_select_f32x8(v0, x0, te_splat_f32x8(-INFINITY))));
        const f32x4 v2 = te_splat_f32x4(v1);
        const f32x8 v3 = te_splat_f32x8(v1);
        f32x8 acc4 = te_splat_f32x8(0.0f);
        f32x8 acc5 = te_splat_f32x8(0.0f);
        for (int32_t r10 = 0; r10 < 6; r10++) {
            const int32_t i2 = i0 + (r10 * 16);
            acc4 = acc4 + te_exp_f32x8(te_load_f32x8(b1 + i2) - v3);
            acc5 = acc5 + te_exp_f32x8(te_load_f32x8(b1 + (i2 + 8)) - v3);
        }
        const f32x4 v4 = te_splat_f32x4(te_lanes_add_f32x8((acc4 + acc5) + te_select_f32x8(v0, te_exp_f32x8(x0 - v3), te_splat_f32x8(0.0f))));
        for (int32_t r4 = 0; r4 < 25; r4++) {
            const int32_t i3 = i0 + (r4 * 4);
            te_store_f32x4(b0 + i3, te_exp_f32x4(te_load_f32x4(b1 + i3) - v2) / v4);
        }
    }
}
