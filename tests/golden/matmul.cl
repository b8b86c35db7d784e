// k0: split range=1 factor=4 outer=3; to range=4 kind=vector; split range=0 factor=2 outer=5; to range=6 kind=upcast; split range=2 factor=4 outer=7; to range=8 kind=unroll; to range=3 kind=local; split range=5 factor=4 outer=9; to range=10 kind=local; to range=9 kind=grid
__kernel __attribute__((reqd_work_group_size(48, 1, 1)))
void k0(__global float4 *restrict b0, __global const float4 *restrict b1, __read_only image2d_t b2, __global const float4 *restrict b3) {
    const int g9 = (int)get_group_id(0);
    const int l3 = (int)get_local_id(0) / 4;
    const int l10 = (int)get_local_id(0) % 4;
    const int i0 = (g9 * 128) + (l10 * 32);
    float4 acc0 = ((float4)(0.0f));
    float4 acc1 = ((float4)(0.0f));
    for (int r7 = 0; r7 < 16; r7++) {
        const int i1 = i0 + r7;
        const float4 x0 = b1[i1];
        const int i2 = l3 + (r7 * 48);
        const float4 x1 = read_imagef(b2, te_sampler, (int2)(i2, 0));
        acc0 = acc0 + (x0.x * x1);
        const float4 x2 = read_imagef(b2, te_sampler, (int2)(i2 + 12, 0));
        acc0 = acc0 + (x0.y * x2);
        const float4 x3 = read_imagef(b2, te_sampler, (int2)(i2 + 24, 0));
        acc0 = acc0 + (x0.z * x3);
        const float4 x4 = read_imagef(b2, te_sampler, (int2)(i2 + 36, 0));
        acc0 = acc0 + (x0.w * x4);
        const float4 x5 = b1[i1 + 16];
        acc1 = acc1 + (x5.x * x1);
        acc1 = acc1 + (x5.y * x2);
        acc1 = acc1 + (x5.z * x3);
        acc1 = acc1 + (x5.w * x4);
    }
    const float4 x6 = b3[l3];
    const float4 v0 = acc0 + x6;
    const int i3 = (l3 + (g9 * 96)) + (l10 * 24);
    b0[i3] = (v0 < ((float4)(0.0f))) ? ((float4)(0.0f)) : v0;
    const float4 v1 = acc1 + x6;
    b0[i3 + 12] = (v1 < ((float4)(0.0f))) ? ((float4)(0.0f)) : v1;
}
