// k0: split range=1 factor=4 outer=3; to range=4 kind=vector; split range=0 factor=2 outer=5; to range=6 kind=upcast; split range=2 factor=4 outer=7; to range=8 kind=unroll; to range=3 kind=local; split range=5 factor=4 outer=9; to range=10 kind=local; to range=9 kind=grid
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> b3: array<vec4<f32>>;
@compute @workgroup_size(48, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g9 = i32(group.x);
    let l3 = i32(thread) / 4;
    let l10 = i32(thread) % 4;
    let i0 = (g9 * 128) + (l10 * 32);
    var acc0 = vec4<f32>(0.0f);
    var acc1 = vec4<f32>(0.0f);
    for (var r7 = 0; r7 < 16; r7++) {
        let i1 = i0 + r7;
        let x0 = b1[i1];
        let i2 = l3 + (r7 * 48);
        let x1 = b2[i2];
        acc0 += vec4<f32>(x0.x) * x1;
        let x2 = b1[i1 + 16];
        acc1 += vec4<f32>(x2.x) * x1;
        let x3 = b2[i2 + 12];
        acc0 += vec4<f32>(x0.y) * x3;
        acc1 += vec4<f32>(x2.y) * x3;
        let x4 = b2[i2 + 24];
        acc0 += vec4<f32>(x0.z) * x4;
        acc1 += vec4<f32>(x2.z) * x4;
        let x5 = b2[i2 + 36];
        acc0 += vec4<f32>(x0.w) * x5;
        acc1 += vec4<f32>(x2.w) * x5;
    }
    let x6 = b3[l3];
    let v0 = acc0 + x6;
    let i3 = (l3 + (g9 * 96)) + (l10 * 24);
    b0[i3] = select(v0, vec4<f32>(0.0f), v0 < vec4<f32>(0.0f));
    let v1 = acc1 + x6;
    b0[i3 + 12] = select(v1, vec4<f32>(0.0f), v1 < vec4<f32>(0.0f));
}
