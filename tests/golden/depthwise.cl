// k0: split range=2 factor=4 outer=5; to range=6 kind=vector; to range=4 kind=unroll; to range=5 kind=local; to range=1 kind=local; split range=0 factor=4 outer=7; to range=8 kind=local; to range=7 kind=grid
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k0(__global float4 *restrict b0, __global const float *restrict b1, __global const float *restrict b2) {
    const int g7 = (int)get_group_id(0);
    const int l1 = ((int)get_local_id(0) / 4) / 2;
    const int l5 = ((int)get_local_id(0) / 4) % 2;
    const int l8 = (int)get_local_id(0) % 4;
    const int i0 = l1 * 30;
    const int i1 = l5 * 8;
    const int i2 = g7 * 900;
    const int i3 = l8 * 225;
    const int i4 = ((i0 + i1) + i2) + i3;
    const int i5 = l1 * (-2);
    const int i6 = max(i5 + 1, 0);
    const int i7 = min(i5 + 16, 3);
    const int i8 = (g7 * 36) + (l8 * 9);
    const int i9 = ((i0 + i2) + i3) + (-8);
    const int i10 = (0 < i1) ? (i4 + (-16)) : i9;
    const int i11 = ((i1 + 7) < 15) ? (i4 + (-8)) : i9;
    float4 acc0 = ((float4)(0.0f));
    float4 acc1 = ((float4)(0.0f));
    float4 acc2 = ((float4)(0.0f));
    for (int r3 = i6; r3 < i7; r3++) {
        const int i12 = r3 * 15;
        const int i13 = i4 + i12;
        const int i14 = i8 + (r3 * 3);
        acc0 = acc0 + (((float4)(b1[i13 + (-15)], b1[i13 + (-13)], b1[i13 + (-11)], b1[i13 + (-9)])) * b2[i14 + 1]);
        const float x0 = b1[i13 + (-14)];
        const float x1 = b1[i13 + (-12)];
        const float x2 = b1[i13 + (-10)];
        acc1 = acc1 + (((float4)(b1[i10 + i12], x0, x1, x2)) * b2[i14]);
        acc2 = acc2 + (((float4)(x0, x1, x2, b1[i11 + i12])) * b2[i14 + 2]);
    }
    b0[(((l1 * 2) + l5) + (g7 * 64)) + (l8 * 16)] = (acc0 + select((float4)(0.0f), acc1, (int4)(-(0 < l5), -1, -1, -1))) + select((float4)(0.0f), acc2, (int4)(-1, -1, -1, -(0 < ((l5 * (-1)) + 1))));
}
