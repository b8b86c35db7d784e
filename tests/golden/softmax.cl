// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=lanes; split range=3 factor=4 outer=8; to range=9 kind=lanes; to range=0 kind=local
__kernel __attribute__((reqd_work_group_size(12, 1, 1)))
void k0(__global float4 *restrict b0, __global const float4 *restrict b1) {
    const int l0 = (int)get_local_id(0);
    const int i0 = l0 * 25;
    float4 acc0 = ((float4)(-INFINITY));
    for (int r6 = 0; r6 < 25; r6++) {
        acc0 = te_max_f32x4(acc0, b1[i0 + r6]);
    }
    const float v0 = te_max_f32(te_max_f32(acc0.x, acc0.z), te_max_f32(acc0.y, acc0.w));
    float4 acc1 = ((float4)(0.0f));
    for (int r8 = 0; r8 < 25; r8++) {
        acc1 = acc1 + exp(b1[i0 + r8] - v0);
    }
    const float v1 = 1.0f / ((acc1.x + acc1.z) + (acc1.y + acc1.w));
    for (int r4 = 0; r4 < 25; r4++) {
        const int i1 = i0 + r4;
        b0[i1] = exp(b1[i1] - v0) * v1;
    }
}
