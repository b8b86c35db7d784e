// k0: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    const int l1 = (int)threadIdx.x;
    const float4 x0 = b1[l1];
    b0[l1] = te_select(x0 < te_float4(0.0f), te_float4(0.0f), x0);
}

// k1: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
extern "C" __global__ void k1(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    const int l1 = (int)threadIdx.x;
    b0[l1 + 36] = b1[l1];
}

// k2: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
extern "C" __global__ void k2(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    const int l1 = (int)threadIdx.x;
    b0[l1 + 63] = b1[l1] * te_float4(2.0f);
}
