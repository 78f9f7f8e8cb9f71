// The programs on the CPU: work-items are fibers, which yield where they wait for each other. Work-groups run one by one.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define KERNEL extern "C" void
#define DEVICE
#define NOINLINE __attribute__((noinline))
#define CONSTANT
#define SHARED static

enum { WAVE = 32, MOST = 1024, STACK = 64 << 10 };

struct fiber {
    ucontext_t context;
    u32 id[3];
    u32 arrivals; // at barriers, and at exchanges within the wave
    bool done;
    char *stack;
};

inline struct machine {
    ucontext_t main;
    fiber fibers[MOST];
    u32 current, count;
    u32 group[3], size[3], groups[3];
    u32 slots[2][MOST]; // values that lanes offer, in turns
    char dynamic[64 << 10];
} cpu;

static inline fiber &self() { return cpu.fibers[cpu.current]; }
static inline u32 thread_x() { return self().id[0]; }
static inline u32 thread_y() { return self().id[1]; }
static inline u32 thread_z() { return self().id[2]; }
static inline u32 block_x() { return cpu.group[0]; }
static inline u32 block_y() { return cpu.group[1]; }
static inline u32 block_z() { return cpu.group[2]; }
static inline u32 size_x() { return cpu.size[0]; }
static inline u32 size_y() { return cpu.size[1]; }
static inline u32 size_z() { return cpu.size[2]; }
static inline u32 items_x() { return cpu.groups[0] * cpu.size[0]; }
static inline u32 items_y() { return cpu.groups[1] * cpu.size[1]; }
static inline u32 items_z() { return cpu.groups[2] * cpu.size[2]; }
static inline u32 lane() { return cpu.current % WAVE; }

static inline void yield() { swapcontext(&self().context, &cpu.main); }

// Waits until the fibers of a range have arrived as often as this one. Fibers take turns in order, so that each arrival is
// seen.
static inline void meet(u32 from, u32 to)
{
    const u32 mine = ++self().arrivals;
    for (;;) {
        bool all = true;
        for (u32 i = from; i < to && i < cpu.count; i++)
            all = all && (cpu.fibers[i].done || cpu.fibers[i].arrivals >= mine);
        if (all) return;
        yield();
    }
}

static inline void barrier() { meet(0, cpu.count); }

// Lanes of a wave offer a value; then each may read all. Two sets of slots in turns, since a lane may be one exchange ahead.
static inline u32 *offer(u32 value)
{
    const u32 start = cpu.current / WAVE * WAVE;
    u32 *slots = cpu.slots[self().arrivals % 2];
    slots[cpu.current] = value;
    meet(start, start + WAVE);
    return slots + start;
}

static inline u32 shuffle(u32 value, u32 from) { return offer(value)[from % WAVE]; }
static inline u32 ballot(bool condition)
{
    const u32 *all = offer(condition);
    u32 mask = 0;
    for (u32 i = 0; i < WAVE; i++) mask |= all[i] << i;
    return mask;
}
static inline u32 first(u32 value) { return offer(value)[0]; }
template <int FROM> static inline u32 lane_of(u32 value) { return offer(value)[FROM]; }
template <int MASK> static inline u32 row_xor(u32 value) { return offer(value)[lane() ^ MASK]; }
template <int N> static inline u32 row_up(u32 value)
{
    const u32 *all = offer(value);
    return lane() % 16 >= N ? all[lane() - N] : 0;
}
static inline u32 row_mirror(u32 value) { return offer(value)[lane() ^ 15]; }
static inline u32 quad_reverse(u32 value) { return offer(value)[lane() ^ 3]; }
static inline u32 other_row(u32 value) { return offer(value)[lane() ^ 16]; }
template <int MASK> static inline u32 swizzle_xor(u32 value) { return offer(value)[lane() ^ MASK]; }

#define ATOMIC(NAME, EXPRESSION)                                                                                       \
    template <typename T> static inline T NAME(T *at, T value)                                                         \
    {                                                                                                                  \
        const T old = *at;                                                                                             \
        *at = EXPRESSION;                                                                                              \
        return old;                                                                                                    \
    }
ATOMIC(atomic_add, old + value)
ATOMIC(atomic_and, old &value)
ATOMIC(atomic_or, old | value)
ATOMIC(atomic_xor, old ^ value)
ATOMIC(atomic_min, old < value ? old : value)
ATOMIC(atomic_max, old > value ? old : value)
ATOMIC(atomic_exchange, value)
#undef ATOMIC
template <typename T> static inline bool atomic_replace(T *at, T *expected, T value)
{
    const bool equal = *at == *expected;
    *expected = *at;
    if (equal) *at = value;
    return equal;
}

typedef void program(const u32 *in, u32 *out, u32 n);

inline program *chosen;
inline const u32 *chosen_in;
inline u32 *chosen_out, chosen_n;

static inline void begin()
{
    chosen(chosen_in, chosen_out, chosen_n);
    self().done = true;
    yield();
}

static inline void run_group()
{
    cpu.count = cpu.size[0] * cpu.size[1] * cpu.size[2];
    for (u32 i = 0; i < cpu.count; i++) {
        fiber &f = cpu.fibers[i];
        f.id[0] = i % cpu.size[0];
        f.id[1] = i / cpu.size[0] % cpu.size[1];
        f.id[2] = i / cpu.size[0] / cpu.size[1];
        f.arrivals = 0;
        f.done = false;
        if (!f.stack) f.stack = (char *)malloc(STACK);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack;
        f.context.uc_stack.ss_size = STACK;
        f.context.uc_link = nullptr;
        makecontext(&f.context, begin, 0);
    }
    for (bool busy = true; busy;) {
        busy = false;
        for (u32 i = 0; i < cpu.count; i++) {
            if (cpu.fibers[i].done) continue;
            busy = true;
            cpu.current = i;
            swapcontext(&cpu.main, &cpu.fibers[i].context);
        }
    }
}
