// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=lanes; split range=3 factor=4 outer=8; to range=9 kind=lanes; to range=0 kind=local
__kernel __attribute__((reqd_work_group_size(7, 1, 1)))
void k0(__global float4 *restrict b0, __global const float4 *restrict b1, __global const float4 *restrict b2) {
    const int l0 = (int)get_local_id(0);
    const int i0 = l0 * 24;
    float4 acc0 = ((float4)(0.0f));
    for (int r6 = 0; r6 < 24; r6++) {
        acc0 = acc0 + b1[i0 + r6];
    }
    const float v0 = ((acc0.x + acc0.z) + (acc0.y + acc0.w)) / 96.0f;
    float4 acc1 = ((float4)(0.0f));
    for (int r8 = 0; r8 < 24; r8++) {
        const float4 v1 = b1[i0 + r8] - v0;
        acc1 = acc1 + (v1 * v1);
    }
    const float v2 = sqrt((((acc1.x + acc1.z) + (acc1.y + acc1.w)) / 96.0f) + 1e-05f);
    for (int r4 = 0; r4 < 24; r4++) {
        const int i1 = i0 + r4;
        b0[i1] = ((b1[i1] - v0) / v2) * b2[r4];
    }
}
