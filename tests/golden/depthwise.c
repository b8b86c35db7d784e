// k0: to range=2 kind=vector; to range=4 kind=unroll; to range=0 kind=grid
void k0(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)symbols;
    float *restrict b0 = buffers[0];
    const float *restrict b1 = buffers[1];
    const float *restrict b2 = buffers[2];
    if (end > 12) end = 12;
    for (int32_t group = begin; group < end; group++) {
        const int32_t g0 = group;
        const int32_t i0 = g0 * 225;
        const int32_t i1 = g0 * 9;
        const int32_t i2 = g0 * 64;
        for (int32_t r1 = 0; r1 < 8; r1++) {
            const int32_t i3 = i0 + (r1 * 30);
            const int32_t i4 = r1 * 2;
            f32x8 acc0 = te_splat_f32x8(0.0f);
            for (int32_t r3 = 0; r3 < 3; r3++) {
                const int32_t i5 = i3 + (r3 * 15);
                const int32_t i6 = i4 + r3;
                const int32_t v0 = (0 < i6) & ((i6 + (-1)) < 15);
                const f32x8 x0 = v0 ? te_load_f32x8(b1 + (i5 + (-15))) : (f32x8){0};
                const float x1 = v0 ? b1[i5 + (-6)] : 0;
                const float x2 = v0 ? b1[i5 + (-4)] : 0;
                const float x3 = v0 ? b1[i5 + (-2)] : 0;
                const int32_t i7 = i1 + (r3 * 3);
                acc0 = acc0 + ((f32x8){0.0f, x0[1], x0[3], x0[5], x0[7], x1, x2, x3} * te_splat_f32x8(b2[i7]));
                acc0 = acc0 + ((f32x8){x0[0], x0[2], x0[4], x0[6], v0 ? b1[i5 + (-7)] : 0, v0 ? b1[i5 + (-5)] : 0, v0 ? b1[i5 + (-3)] : 0, v0 ? b1[i5 + (-1)] : 0} * te_splat_f32x8(b2[i7 + 1]));
                acc0 = acc0 + ((f32x8){x0[1], x0[3], x0[5], x0[7], x1, x2, x3, 0.0f} * te_splat_f32x8(b2[i7 + 2]));
            }
            te_store_f32x8(b0 + (i2 + (r1 * 8)), acc0);
        }
    }
}
