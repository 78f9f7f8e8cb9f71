// Runs a Metal kernel that was compiled as C++: every thread of a grid, the lanes of a SIMD-group in lock-step at their shuffles,
// and every access to memory checked.
//
// A lane is a fiber. Lanes run one after the other, each up to its next shuffle; there it leaves its value and the next lane goes
// on. When the first lane is resumed, all have left theirs. The compiler puts a call in front of each access to memory
// (-fsanitize=kernel-address, in the form with calls), and these calls are defined here: an access has to lie within one tensor that
// is bound, or on the lane's own stack. What is read has to have been written, by the host or an earlier dispatch; nothing is written
// twice in a dispatch, and nothing is read that it has written: lanes never exchange data through memory, so that either
// would be a race on a device.

#include "runtime.h"

#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

namespace {

enum : unsigned char { UNWRITTEN = 0, WRITTEN = 1, WRITTEN_NOW = 2 };

const size_t STACK = 64 << 10;

const char *const tensor_names[SHIM_TENSORS] = {"x",        "z",       "b",         "c",        "dt",        "a_log", "d",
                                               "dt_bias", "state_in", "state_out", "slots_in", "slots_out", "y"};

struct lane {
    ucontext_t start;
    jmp_buf resume;
    bool started;
    bool done;
    char *stack;
};

// What a lane left at a shuffle: two of them, since lanes that were resumed come to their next shuffle before the others have read.
struct left {
    float value;
    unsigned mask;
    uint64_t round;
};

struct machine {
    lane lanes[SHIM_LANES];
    left at[2][SHIM_LANES];
    uint64_t round[SHIM_LANES];
    unsigned current;
    jmp_buf host;
    const shim_kernel *kernel;
    shim_thread thread;
    shim_tensor tensors[SHIM_TENSORS];
    uint64_t constants_bytes;
    int last[2]; // the tensor that was read, and the one that was written
    char *error;
    size_t error_size;
    // What this dispatch has written.
    struct {
        unsigned char *written;
        size_t size;
    } *writes;
    size_t write_count, write_room;
};

thread_local machine *active __attribute__((tls_model("initial-exec")));

machine *make_machine()
{
    machine *made = static_cast<machine *>(std::calloc(1, sizeof(machine)));
    for (lane &lane : made->lanes) lane.stack = static_cast<char *>(std::malloc(STACK));
    return made;
}

// One per thread of the host, and never freed: the threads of a test live as long as it does, and machines are small.
machine *machine_of_this_thread()
{
    thread_local machine *const mine = make_machine();
    return mine;
}

[[noreturn]] void fault(const void *place, const char *format, ...)
{
    machine &m = *active;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const uint3 group = m.thread.threadgroup_position_in_grid;
    std::snprintf(m.error, m.error_size, "%p %s: %s, in lane %u of SIMD-group %u of threadgroup (%u, %u, %u)", place,
                  m.kernel->name, text, m.current, m.thread.simdgroup_index_in_threadgroup, group.x, group.y, group.z);
    // The other lanes are left where they are; the next launch starts them afresh.
    _longjmp(m.host, 1);
}

// --- lanes -------------------------------------------------------------------------------------------------------------

void lane_main();

void resume(machine &m, unsigned number)
{
    lane &to = m.lanes[number];
    m.current = number;
    if (!to.started) {
        to.started = true;
        getcontext(&to.start);
        to.start.uc_stack.ss_sp = to.stack;
        to.start.uc_stack.ss_size = STACK;
        to.start.uc_link = nullptr;
        makecontext(&to.start, lane_main, 0);
        setcontext(&to.start);
        std::abort();
    }
    _longjmp(to.resume, 1);
}

// The next lane that has not ended, this one last; SHIM_LANES where all have.
unsigned next_lane(const machine &m)
{
    for (unsigned step = 1; step <= SHIM_LANES; step++) {
        const unsigned number = (m.current + step) % SHIM_LANES;
        if (!m.lanes[number].done) return number;
    }
    return SHIM_LANES;
}

// Fibers outlive a kernel: starting one is dear, and there are very many SIMD-groups.
void lane_main()
{
    for (;;) {
        machine &m = *active;
        lane &self = m.lanes[m.current];
        shim_thread thread = m.thread;
        thread.thread_index_in_simdgroup = m.current;
        m.kernel->run(thread);
        self.done = true;
        if (_setjmp(self.resume) == 0) {
            const unsigned next = next_lane(m);
            if (next == SHIM_LANES) _longjmp(m.host, 2);
            resume(m, next);
        }
    }
}

void run_simdgroup(machine &m)
{
    for (unsigned number = 0; number < SHIM_LANES; number++) {
        m.lanes[number].done = false;
        m.round[number] = 0;
        m.at[0][number].round = m.at[1][number].round = 0;
    }
    resume(m, 0);
}

// --- memory ------------------------------------------------------------------------------------------------------------

bool within(const shim_tensor &tensor, uintptr_t address, size_t size)
{
    const uintptr_t start = reinterpret_cast<uintptr_t>(tensor.at);
    return address >= start && address - start < tensor.bytes && size <= tensor.bytes - (address - start);
}

// The tensor whose accessible part these bytes lie in. Often the same one as before.
int tensor_of(machine &m, uintptr_t address, size_t size, bool writes)
{
    int &last = m.last[writes];
    if (within(m.tensors[last], address, size) && (!writes || m.tensors[last].may_write)) return last;
    for (int number = 0; number < SHIM_TENSORS; number++)
        if (within(m.tensors[number], address, size) && (!writes || m.tensors[number].may_write)) return last = number;
    return -1;
}

[[noreturn]] void stray(const machine &m, uintptr_t address, size_t size, bool writes, const void *place)
{
    const char *const what = writes ? "written" : "read";
    int nearest = -1;
    uint64_t distance = UINT64_MAX;
    for (int number = 0; number < SHIM_TENSORS; number++) {
        const shim_tensor &tensor = m.tensors[number];
        if (tensor.bytes == 0) continue;
        const uintptr_t start = reinterpret_cast<uintptr_t>(tensor.at), end = start + tensor.bytes;
        const uint64_t away = address < start ? start - address : address >= end ? address - end + 1 : 0;
        if (away < distance) {
            distance = away;
            nearest = number;
        }
    }
    if (nearest < 0) fault(place, "%zu bytes at %#zx are %s, and no tensor is bound", size, address, what);
    const shim_tensor &tensor = m.tensors[nearest];
    const int64_t offset = static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(tensor.at));
    fault(place, "%zu bytes are %s at byte %lld of %s%s, which has %llu", size, what, static_cast<long long>(offset),
          tensor_names[nearest], writes && !tensor.may_write ? " (read only)" : "",
          static_cast<unsigned long long>(tensor.bytes));
}

bool on_stack(const machine &m, uintptr_t address)
{
    return address - reinterpret_cast<uintptr_t>(m.lanes[m.current].stack) < STACK;
}

// Inlined into each of the compiler's calls, where the size is a constant.
__attribute__((always_inline)) inline void check_read(uintptr_t address, size_t size, const void *place)
{
    machine &m = *active;
    if (on_stack(m, address)) return;
    const uintptr_t constants = reinterpret_cast<uintptr_t>(m.thread.constants);
    if (address >= constants && address - constants + size <= m.constants_bytes) return;
    const int number = tensor_of(m, address, size, false);
    if (number < 0) stray(m, address, size, false, place);
    const shim_tensor &tensor = m.tensors[number];
    const size_t offset = address - reinterpret_cast<uintptr_t>(tensor.buffer);
    for (size_t byte = 0; byte < size; byte++) {
        const unsigned char state = tensor.written[offset + byte];
        if (state == WRITTEN) continue;
        fault(place, "%zu bytes are read at byte %zu of %s, which %s", size,
              static_cast<size_t>(address - reinterpret_cast<uintptr_t>(tensor.at)), tensor_names[number],
              state == UNWRITTEN ? "nobody has written" : "this dispatch has written");
    }
}

__attribute__((always_inline)) inline void check_write(uintptr_t address, size_t size, const void *place)
{
    machine &m = *active;
    if (on_stack(m, address)) return;
    const int number = tensor_of(m, address, size, true);
    if (number < 0) stray(m, address, size, true, place);
    const shim_tensor &tensor = m.tensors[number];
    const size_t offset = address - reinterpret_cast<uintptr_t>(tensor.buffer);
    for (size_t byte = 0; byte < size; byte++) {
        if (tensor.written[offset + byte] == WRITTEN_NOW)
            fault(place, "%zu bytes are written at byte %zu of %s for the second time in one dispatch", size,
                  static_cast<size_t>(address - reinterpret_cast<uintptr_t>(tensor.at)), tensor_names[number]);
        tensor.written[offset + byte] = WRITTEN_NOW;
    }
    if (m.write_count == m.write_room) {
        m.write_room = m.write_room ? 2 * m.write_room : 1024;
        void *const room = std::realloc(m.writes, m.write_room * sizeof *m.writes);
        if (!room) std::abort();
        m.writes = static_cast<decltype(m.writes)>(room);
    }
    m.writes[m.write_count++] = {tensor.written + offset, size};
}

} // namespace

float shim_shuffle_xor(float value, unsigned mask)
{
    machine &m = *active;
    const unsigned self = m.current;
    const uint64_t round = ++m.round[self];
    m.at[round & 1][self] = {value, mask, round};
    if (_setjmp(m.lanes[self].resume) == 0) {
        const unsigned next = next_lane(m);
        // Alone: the others have ended without a shuffle.
        if (next != self) resume(m, next);
    }
    const unsigned other = self ^ mask;
    const left &there = m.at[round & 1][other % SHIM_LANES];
    if (other >= SHIM_LANES) fault(__builtin_return_address(0), "a shuffle with lane %u", other);
    if (there.round != round || there.mask != mask)
        fault(__builtin_return_address(0), "a shuffle with lane %u, which is not at this shuffle", other);
    return there.value;
}

// --- what the compiler calls ---------------------------------------------------------------------------------------------

extern "C" {

#define ACCESS(SIZE)                                                                                                    \
    void __asan_load##SIZE##_noabort(uintptr_t address) { check_read(address, SIZE, __builtin_return_address(0)); }     \
    void __asan_store##SIZE##_noabort(uintptr_t address) { check_write(address, SIZE, __builtin_return_address(0)); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __asan_loadN_noabort(uintptr_t address, size_t size) { check_read(address, size, __builtin_return_address(0)); }
void __asan_storeN_noabort(uintptr_t address, size_t size) { check_write(address, size, __builtin_return_address(0)); }
void __asan_handle_no_return() {}

void *__asan_memcpy(void *to, const void *from, size_t size)
{
    check_read(reinterpret_cast<uintptr_t>(from), size, __builtin_return_address(0));
    check_write(reinterpret_cast<uintptr_t>(to), size, __builtin_return_address(0));
    return std::memcpy(to, from, size);
}

void *__asan_memset(void *to, int value, size_t size)
{
    check_write(reinterpret_cast<uintptr_t>(to), size, __builtin_return_address(0));
    return std::memset(to, value, size);
}

// -fsanitize=alignment, bounds and shift. The first word of each description is the file's name, then line and column.
void __ubsan_handle_type_mismatch_v1(void *, uintptr_t address)
{
    fault(__builtin_return_address(0), "a type at %#zx, to which it is not aligned", static_cast<size_t>(address));
}
void __ubsan_handle_out_of_bounds(void *, uintptr_t index)
{
    fault(__builtin_return_address(0), "element %zu of a local array that has fewer", static_cast<size_t>(index));
}
void __ubsan_handle_shift_out_of_bounds(void *, uintptr_t, uintptr_t by)
{
    fault(__builtin_return_address(0), "a shift by %zu", static_cast<size_t>(by));
}

// --- what the tests call -------------------------------------------------------------------------------------------------

// The name of a kernel; null beyond the last one.
const char *shim_kernel_name(size_t number)
{
    for (size_t at = 0; at <= number; at++)
        if (!shim_kernels[at].name) return nullptr;
    return shim_kernels[number].name;
}

// Runs threadgroups of `simdgroups` SIMD-groups over a grid. Gives 0, or 1 with an error, which begins with the address of the code
// at fault.
int shim_dispatch(size_t number, const shim_tensor *tensors, const void *constants, size_t constants_bytes,
                  const uint32_t *grid, uint32_t simdgroups, char *error, size_t error_size)
{
    machine *const machine = machine_of_this_thread();
    active = machine;
    machine->kernel = &shim_kernels[number];
    machine->error = error;
    machine->error_size = error_size;
    machine->constants_bytes = constants_bytes;
    machine->thread.constants = constants;
    std::memcpy(machine->tensors, tensors, sizeof machine->tensors);
    for (int tensor = 0; tensor < SHIM_TENSORS; tensor++) machine->thread.buffers[tensor] = tensors[tensor].at;

    // Volatile: they change between the setjmp and a longjmp to it.
    volatile int status = 0;
    for (volatile uint32_t z = 0; z < grid[2] && !status; z = z + 1)
        for (volatile uint32_t y = 0; y < grid[1] && !status; y = y + 1)
            for (volatile uint32_t x = 0; x < grid[0] && !status; x = x + 1)
                for (volatile uint32_t wave = 0; wave < simdgroups && !status; wave = wave + 1) {
                    machine->thread.threadgroup_position_in_grid = {x, y, z};
                    machine->thread.simdgroup_index_in_threadgroup = wave;
                    switch (_setjmp(machine->host)) {
                    case 0: run_simdgroup(*machine); break;
                    case 1: status = 1; break;
                    default: break;
                    }
                }
    if (status)
        for (lane &lane : machine->lanes) lane.started = false;
    for (size_t at = 0; at < machine->write_count; at++)
        std::memset(machine->writes[at].written, WRITTEN, machine->writes[at].size);
    machine->write_count = 0;
    return status;
}

// Where the library is in memory, for places in it.
const void *shim_base() { return reinterpret_cast<const void *>(&shim_dispatch); }

} // extern "C"
