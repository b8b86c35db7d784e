// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=16 outer=6; to range=7 kind=lanes; split range=3 factor=16 outer=8; to range=9 kind=lanes; split range=4 factor=4 outer=10; to range=11 kind=upcast; to range=0 kind=local
__kernel __attribute__((reqd_work_group_size(7, 1, 1)))
void k0(__global float4 *restrict b0, __global const float4 *restrict b1, __global const float4 *restrict b2) {
    const int l0 = (int)get_local_id(0);
    const int i0 = l0 * 24;
    float4 acc0 = ((float4)(0.0f));
    float4 acc1 = ((float4)(0.0f));
    float4 acc2 = ((float4)(0.0f));
    float4 acc3 = ((float4)(0.0f));
    for (int r6 = 0; r6 < 6; r6++) {
        const int i1 = i0 + (r6 * 4);
        acc0 = acc0 + b1[i1];
        acc1 = acc1 + b1[i1 + 1];
        acc2 = acc2 + b1[i1 + 2];
        acc3 = acc3 + b1[i1 + 3];
    }
    const float4 v1 = (acc0 + acc1) + (acc2 + acc3);
    const float v0 = ((v1.x + v1.z) + (v1.y + v1.w)) / 96.0f;
    float4 acc4 = ((float4)(0.0f));
    float4 acc5 = ((float4)(0.0f));
    float4 acc6 = ((float4)(0.0f));
    float4 acc7 = ((float4)(0.0f));
    for (int r8 = 0; r8 < 6; r8++) {
        const int i2 = i0 + (r8 * 4);
        const float4 v2 = b1[i2] - v0;
        acc4 = acc4 + (v2 * v2);
        const float4 v3 = b1[i2 + 1] - v0;
        acc5 = acc5 + (v3 * v3);
        const float4 v4 = b1[i2 + 2] - v0;
        acc6 = acc6 + (v4 * v4);
        const float4 v5 = b1[i2 + 3] - v0;
        acc7 = acc7 + (v5 * v5);
    }
    const float4 v7 = (acc4 + acc5) + (acc6 + acc7);
    const float v6 = sqrt((((v7.x + v7.z) + (v7.y + v7.w)) / 96.0f) + 1e-05f);
    for (int r10 = 0; r10 < 6; r10++) {
        const int i3 = r10 * 4;
        const int i4 = i0 + i3;
        b0[i4] = ((b1[i4] - v0) / v6) * b2[i3];
        const int i5 = i4 + 1;
        b0[i5] = ((b1[i5] - v0) / v6) * b2[i3 + 1];
        const int i6 = i4 + 2;
        b0[i6] = ((b1[i6] - v0) / v6) * b2[i3 + 2];
        const int i7 = i4 + 3;
        b0[i7] = ((b1[i7] - v0) / v6) * b2[i3 + 3];
    }
}
