// k0: split range=2 factor=4 outer=5; to range=6 kind=vector; to range=4 kind=unroll; to range=5 kind=local; to range=1 kind=local; split range=0 factor=4 outer=7; to range=8 kind=local; to range=7 kind=grid
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k0(__global float4 *restrict b0, __global const float *restrict b1, __global const float *restrict b2) {
    const int g7 = (int)get_group_id(0);
    const int l1 = ((int)get_local_id(0) / 4) / 2;
    const int l5 = ((int)get_local_id(0) / 4) % 2;
    const int l8 = (int)get_local_id(0) % 4;
    const int i0 = l5 * 8;
    const int i1 = (((l1 * 30) + i0) + (g7 * 900)) + (l8 * 225);
    const int i2 = l1 * 2;
    const int v0 = 0 < i0;
    const int i3 = (g7 * 36) + (l8 * 9);
    const int v1 = (i0 + 7) < 15;
    float4 acc0 = ((float4)(0.0f));
    for (int r3 = 0; r3 < 3; r3++) {
        const int i4 = i1 + (r3 * 15);
        const int i5 = i2 + r3;
        const int v2 = (0 < i5) & ((i5 + (-1)) < 15);
        const float x0 = te_load_f32(b1, i4 + (-14), v2);
        const float x1 = te_load_f32(b1, i4 + (-12), v2);
        const float x2 = te_load_f32(b1, i4 + (-10), v2);
        const int i6 = i3 + (r3 * 3);
        acc0 = acc0 + (((float4)(te_load_f32(b1, i4 + (-16), v2 & v0), x0, x1, x2)) * b2[i6]);
        acc0 = acc0 + (((float4)(te_load_f32(b1, i4 + (-15), v2), te_load_f32(b1, i4 + (-13), v2), te_load_f32(b1, i4 + (-11), v2), te_load_f32(b1, i4 + (-9), v2))) * b2[i6 + 1]);
        acc0 = acc0 + (((float4)(x0, x1, x2, te_load_f32(b1, i4 + (-8), v2 & v1))) * b2[i6 + 2]);
    }
    b0[((i2 + l5) + (g7 * 64)) + (l8 * 16)] = acc0;
}
