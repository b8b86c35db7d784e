// k0: split range=1 factor=4 outer=2; to range=3 kind=lanes; to range=0 kind=local
__kernel __attribute__((reqd_work_group_size(12, 1, 1)))
void k0(__global float *restrict b0, __global float *restrict b1, __global const float4 *restrict b2) {
    const int l0 = (int)get_local_id(0);
    const int i0 = l0 * 24;
    float4 acc0 = ((float4)(-INFINITY));
    float4 acc1 = ((float4)(0.0f));
    for (int r2 = 0; r2 < 24; r2++) {
        const float4 x0 = b2[i0 + r2];
        acc0 = te_max_f32x4(acc0, x0);
        acc1 = acc1 + x0;
    }
    b0[l0] = te_max_f32(te_max_f32(acc0.x, acc0.z), te_max_f32(acc0.y, acc0.w));
    b1[l0] = ((acc1.x + acc1.z) + (acc1.y + acc1.w)) / 96.0f;
}
