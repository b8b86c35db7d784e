// k0: split range=1 factor=4 outer=3; to range=4 kind=vector; split range=0 factor=4 outer=5; to range=6 kind=upcast; split range=2 factor=4 outer=7; to range=8 kind=unroll; to range=3 kind=local; split range=5 factor=4 outer=9; to range=10 kind=local; to range=9 kind=grid
__kernel __attribute__((reqd_work_group_size(48, 1, 1)))
void k0(__global float4 *restrict b0, __global const float4 *restrict b1, __read_only image2d_t b2, __global const float4 *restrict b3) {
    const int g9 = (int)get_group_id(0);
    const int l3 = (int)get_local_id(0) / 4;
    const int l10 = (int)get_local_id(0) % 4;
    const int i0 = (g9 * 256) + (l10 * 64);
    float4 acc0 = ((float4)(0.0f));
    float4 acc1 = ((float4)(0.0f));
    float4 acc2 = ((float4)(0.0f));
    float4 acc3 = ((float4)(0.0f));
    for (int r7 = 0; r7 < 16; r7++) {
        const int i1 = i0 + r7;
        const float4 x0 = b1[i1];
        const int i2 = l3 + (r7 * 48);
        const float4 x1 = read_imagef(b2, (int2)(i2, 0));
        acc0 = acc0 + (x0.x * x1);
        const float4 x2 = read_imagef(b2, (int2)(i2 + 12, 0));
        acc0 = acc0 + (x0.y * x2);
        const float4 x3 = read_imagef(b2, (int2)(i2 + 24, 0));
        acc0 = acc0 + (x0.z * x3);
        const float4 x4 = read_imagef(b2, (int2)(i2 + 36, 0));
        acc0 = acc0 + (x0.w * x4);
        const float4 x5 = b1[i1 + 16];
        acc1 = acc1 + (x5.x * x1);
        acc1 = acc1 + (x5.y * x2);
        acc1 = acc1 + (x5.z * x3);
        acc1 = acc1 + (x5.w * x4);
        const float4 x6 = b1[i1 + 32];
        acc2 = acc2 + (x6.x * x1);
        acc2 = acc2 + (x6.y * x2);
        acc2 = acc2 + (x6.z * x3);
        acc2 = acc2 + (x6.w * x4);
        const float4 x7 = b1[i1 + 48];
        acc3 = acc3 + (x7.x * x1);
        acc3 = acc3 + (x7.y * x2);
        acc3 = acc3 + (x7.z * x3);
        acc3 = acc3 + (x7.w * x4);
    }
    const float4 x8 = b3[l3];
    const float4 v0 = acc0 + x8;
    const int i3 = (l3 + (g9 * 192)) + (l10 * 48);
    b0[i3] = select(v0, (float4)(0.0f), v0 < ((float4)(0.0f)));
    const float4 v1 = acc1 + x8;
    b0[i3 + 12] = select(v1, (float4)(0.0f), v1 < ((float4)(0.0f)));
    const float4 v2 = acc2 + x8;
    b0[i3 + 24] = select(v2, (float4)(0.0f), v2 < ((float4)(0.0f)));
    const float4 v3 = acc3 + x8;
    b0[i3 + 36] = select(v3, (float4)(0.0f), v3 < ((float4)(0.0f)));
}
