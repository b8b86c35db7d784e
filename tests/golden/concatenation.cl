// k0: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
__kernel __attribute__((reqd_work_group_size(36, 1, 1)))
void k0(__global float4 *restrict b0, __global const float4 *restrict b1) {
    const int l1 = (int)get_local_id(0);
    const float4 x0 = b1[l1];
    b0[l1] = select(x0, (float4)(0.0f), x0 < ((float4)(0.0f)));
}

// k1: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
__kernel __attribute__((reqd_work_group_size(27, 1, 1)))
void k1(__global float4 *restrict b0, __global const float4 *restrict b1) {
    const int l1 = (int)get_local_id(0);
    b0[l1 + 36] = b1[l1];
}

// k2: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
__kernel __attribute__((reqd_work_group_size(36, 1, 1)))
void k2(__global float4 *restrict b0, __global const float4 *restrict b1) {
    const int l1 = (int)get_local_id(0);
    b0[l1 + 63] = b1[l1] * 2.0f;
}
