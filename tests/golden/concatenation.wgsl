// k0: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
@compute @workgroup_size(36, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let l1 = i32(thread);
    let x0 = b1[l1];
    b0[l1] = select(x0, vec4<f32>(0.0f), x0 < vec4<f32>(0.0f));
}

// k1: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
@compute @workgroup_size(27, 1, 1)
fn k1(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let l1 = i32(thread);
    b0[l1 + 36] = b1[l1];
}

// k2: split range=0 factor=4 outer=1; to range=2 kind=vector; to range=1 kind=local
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
@compute @workgroup_size(36, 1, 1)
fn k2(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let l1 = i32(thread);
    b0[l1 + 63] = b1[l1] * vec4<f32>(2.0f);
}
