// k0: to range=1 kind=lanes; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    if (end > 12) end = 12;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 96;
        const f32x8 x0 = te_load_f32x8(b2 + i0);
        const f32x8 x1 = te_load_f32x8(b2 + (i0 + 8));
        const f32x8 x2 = te_load_f32x8(b2 + (i0 + 16));
        const f32x8 x3 = te_load_f32x8(b2 + (i0 + 24));
        const f32x8 x4 = te_load_f32x8(b2 + (i0 + 32));
        const f32x8 x5 = te_load_f32x8(b2 + (i0 + 40));
        const f32x8 x6 = te_load_f32x8(b2 + (i0 + 48));
        const f32x8 x7 = te_load_f32x8(b2 + (i0 + 56));
        const f32x8 x8 = te_load_f32x8(b2 + (i0 + 64));
        const f32x8 x9 = te_load_f32x8(b2 + (i0 + 72));
        const f32x8 x10 = te_load_f32x8(b2 + (i0 + 80));
        const f32x8 x11 = te_load_f32x8(b2 + (i0 + 88));
        b0[g0] = te_lanes_max_f32x8(te_max_f32x8(te_max_f32x8(te_max_f32x8(te_max_f32x8(x0, x1), te_max_f32x8(x2, x3)), te_max_f32x8(te_max_f32x8(x4, x5), te_max_f32x8(x6, x7))), te_max_f32x8(te_max_f32x8(x8, x9), te_max_f32x8(x10, x11))));
        b1[g0] = te_lanes_add_f32x8((((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7))) + ((x8 + x9) + (x10 + x11))) / 96.0f;
    }
}
