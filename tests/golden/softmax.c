// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; peel range=2 multiple=8 rest=6 overlap=True; to range=2 kind=lanes; to range=6 kind=lanes; peel range=3 multiple=8 rest=7 overlap=True; to range=3 kind=lanes; to range=7 kind=lanes; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    if (end > 12) end = 12;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 100;
        const f32x8 x0 = te_load_f32x8(b1 + i0);
        const f32x8 x1 = te_load_f32x8(b1 + (i0 + 8));
        const f32x8 x2 = te_load_f32x8(b1 + (i0 + 16));
        const f32x8 x3 = te_load_f32x8(b1 + (i0 + 24));
        const f32x8 x4 = te_load_f32x8(b1 + (i0 + 32));
        const f32x8 x5 = te_load_f32x8(b1 + (i0 + 40));
        const f32x8 x6 = te_load_f32x8(b1 + (i0 + 48));
        const f32x8 x7 = te_load_f32x8(b1 + (i0 + 56));
        const f32x8 x8 = te_load_f32x8(b1 + (i0 + 64));
        const f32x8 x9 = te_load_f32x8(b1 + (i0 + 72));
        const f32x8 x10 = te_load_f32x8(b1 + (i0 + 80));
        const f32x8 x11 = te_load_f32x8(b1 + (i0 + 88));
        const i32x8 v0 = (i32x8){-(0), -(0), -(0), -(0), -(1), -(1), -(1), -(1)};
        const f32x8 x12 = te_load_f32x8(b1 + (i0 + 92));
        const float v1 = te_lanes_max_f32x8(te_max_f32x8(te_max_f32x8(te_max_f32x8(te_max_f32x8(te_max_f32x8(x0, x1), te_max_f32x8(x2, x3)), te_max_f32x8(te_max_f32x8(x4, x5), te_max_f32x8(x6, x7))), te_max_f32x8(te_max_f32x8(x8, x9), te_max_f32x8(x10, x11))), te_select_f32x8(v0, x12, te_splat_f32x8(-INFINITY))));
        const f32x4 v2 = te_splat_f32x4(v1);
        const f32x8 v3 = te_splat_f32x8(v1);
        const f32x4 v4 = te_splat_f32x4(te_lanes_add_f32x8(((((te_exp_f32x8(x0 - v3) + te_exp_f32x8(x1 - v3)) + (te_exp_f32x8(x2 - v3) + te_exp_f32x8(x3 - v3))) + ((te_exp_f32x8(x4 - v3) + te_exp_f32x8(x5 - v3)) + (te_exp_f32x8(x6 - v3) + te_exp_f32x8(x7 - v3)))) + ((te_exp_f32x8(x8 - v3) + te_exp_f32x8(x9 - v3)) + (te_exp_f32x8(x10 - v3) + te_exp_f32x8(x11 - v3)))) + te_select_f32x8(v0, te_exp_f32x8(x12 - v3), te_splat_f32x8(0.0f))));
        for (int32_t r4 = 0; r4 < 25; r4++) {
            const int32_t i1 = i0 + (r4 * 4);
            te_store_f32x4(b0 + i1, te_exp_f32x4(te_load_f32x4(b1 + i1) - v2) / v4);
        }
    }
}
