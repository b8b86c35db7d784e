// k0: split range=1 factor=16 outer=2; to range=3 kind=lanes; to range=0 kind=local
__kernel __attribute__((reqd_work_group_size(12, 1, 1)))
void k0(__global float *restrict b0, __global float *restrict b1, __global const float4 *restrict b2) {
    const int l0 = (int)get_local_id(0);
    const int i0 = l0 * 24;
    float4 acc0 = ((float4)(-INFINITY));
    float4 acc1 = ((float4)(-INFINITY));
    float4 acc2 = ((float4)(-INFINITY));
    float4 acc3 = ((float4)(-INFINITY));
    float4 acc4 = ((float4)(0.0f));
    float4 acc5 = ((float4)(0.0f));
    float4 acc6 = ((float4)(0.0f));
    float4 acc7 = ((float4)(0.0f));
    for (int r2 = 0; r2 < 6; r2++) {
        const int i1 = i0 + (r2 * 4);
        const float4 x0 = b2[i1];
        acc0 = te_max_f32x4(acc0, x0);
        const float4 x1 = b2[i1 + 1];
        acc1 = te_max_f32x4(acc1, x1);
        const float4 x2 = b2[i1 + 2];
        acc2 = te_max_f32x4(acc2, x2);
        const float4 x3 = b2[i1 + 3];
        acc3 = te_max_f32x4(acc3, x3);
        acc4 = acc4 + x0;
        acc5 = acc5 + x1;
        acc6 = acc6 + x2;
        acc7 = acc7 + x3;
    }
    const float4 v0 = te_max_f32x4(te_max_f32x4(acc0, acc1), te_max_f32x4(acc2, acc3));
    b0[l0] = te_max_f32(te_max_f32(v0.x, v0.z), te_max_f32(v0.y, v0.w));
    const float4 v1 = (acc4 + acc5) + (acc6 + acc7);
    b1[l0] = ((v1.x + v1.z) + (v1.y + v1.w)) / 96.0f;
}
