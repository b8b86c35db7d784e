// k0: split range=2 factor=2 outer=6; to range=7 kind=vector; split range=0 factor=4 outer=8; to range=9 kind=upcast; to range=5 kind=unroll; to range=6 kind=local; split range=1 factor=7 outer=10; to range=11 kind=local; to range=8 kind=grid; to range=10 kind=grid
__kernel __attribute__((reqd_work_group_size(49, 1, 1)))
void k0(__global float2 *restrict b0, __global const float *restrict b1, __global const float *restrict b2, __global const float4 *restrict b3) {
    const int g10 = (int)get_group_id(0);
    const int g8 = (int)get_group_id(1);
    const int l6 = (int)get_local_id(0) / 7;
    const int l11 = (int)get_local_id(0) % 7;
    const int i0 = l6 * 2;
    const int i1 = (i0 + (g10 * 98)) + (l11 * 14);
    const int i2 = (g10 * 7) + l11;
    const int v0 = 0 < i0;
    const int i3 = g8 * 288;
    const int v1 = (i0 + 2) < 14;
    float2 acc0 = ((float2)(0.0f));
    float2 acc1 = ((float2)(0.0f));
    float2 acc2 = ((float2)(0.0f));
    float2 acc3 = ((float2)(0.0f));
    for (int r3 = 0; r3 < 8; r3++) {
        const int i4 = i1 + (r3 * 196);
        const int i5 = i3 + (r3 * 9);
        for (int r4 = 0; r4 < 3; r4++) {
            const int i6 = i4 + (r4 * 14);
            const int i7 = i2 + r4;
            const int v2 = (0 < i7) & ((i7 + (-1)) < 14);
            const int i8 = i6 + (-14);
            const float2 v3 = (float2)(te_load_f32(b1, i6 + (-15), v2 & v0), te_load_f32(b1, i8, v2));
            const int i9 = i5 + (r4 * 3);
            acc0 = acc0 + (v3 * b2[i9]);
            const float2 x0 = v2 ? *(__global const float2 *)(b1 + i8) : (float2)(0);
            acc0 = acc0 + (x0 * b2[i9 + 1]);
            const float2 v4 = (float2)(te_load_f32(b1, i6 + (-13), v2), te_load_f32(b1, i6 + (-12), v2 & v1));
            acc0 = acc0 + (v4 * b2[i9 + 2]);
            acc1 = acc1 + (v3 * b2[i9 + 72]);
            acc1 = acc1 + (x0 * b2[i9 + 73]);
            acc1 = acc1 + (v4 * b2[i9 + 74]);
            acc2 = acc2 + (v3 * b2[i9 + 144]);
            acc2 = acc2 + (x0 * b2[i9 + 145]);
            acc2 = acc2 + (v4 * b2[i9 + 146]);
            acc3 = acc3 + (v3 * b2[i9 + 216]);
            acc3 = acc3 + (x0 * b2[i9 + 217]);
            acc3 = acc3 + (v4 * b2[i9 + 218]);
        }
    }
    const float4 x1 = b3[g8];
    const float2 v5 = acc0 + x1.x;
    const int i10 = ((l6 + (g8 * 392)) + (g10 * 49)) + (l11 * 7);
    b0[i10] = select(v5, (float2)(0.0f), v5 < ((float2)(0.0f)));
    const float2 v6 = acc1 + x1.y;
    b0[i10 + 98] = select(v6, (float2)(0.0f), v6 < ((float2)(0.0f)));
    const float2 v7 = acc2 + x1.z;
    b0[i10 + 196] = select(v7, (float2)(0.0f), v7 < ((float2)(0.0f)));
    const float2 v8 = acc3 + x1.w;
    b0[i10 + 294] = select(v8, (float2)(0.0f), v8 < ((float2)(0.0f)));
}
