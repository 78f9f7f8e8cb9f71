// A plain copy, what bandwidth is compared with: four pieces of 16 bytes a lane, as the step's kernel has them in flight.
// Compiler builtins only, as in hip/ssm_update.hip: compiled by hipRTC, which may declare more or less by itself.

#define BLOCK 256
#define PIECES 4

typedef unsigned int piece __attribute__((ext_vector_type(4)));

extern "C" __attribute__((global, amdgpu_flat_work_group_size(BLOCK, BLOCK))) void
copy(const piece *from, piece *to, unsigned int count)
{
    const unsigned int first =
        __builtin_amdgcn_workgroup_id_x() * (BLOCK * PIECES) + __builtin_amdgcn_workitem_id_x();
    piece pieces[PIECES];
    for (int i = 0; i < PIECES; i++)
        if (first + i * BLOCK < count) pieces[i] = from[first + i * BLOCK];
    for (int i = 0; i < PIECES; i++)
        if (first + i * BLOCK < count) to[first + i * BLOCK] = pieces[i];
}
