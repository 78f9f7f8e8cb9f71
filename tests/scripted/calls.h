/* What every scripted library shares: the record of its calls, faults by a test's script, texts of errors, and memory with zones
 * around it. tests/common/scripting.rs has the declarations of the test's side in Rust.
 *
 * Included once, at the top of a script's only source file. The state is that of one loaded copy of the library. The functions
 * script_* may be called from any thread, never fail, and are themselves neither recorded nor made to fail.
 */
#ifndef SCRIPTED_CALLS_H
#define SCRIPTED_CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRIPT_PARAMS = 208, SCRIPT_ARGUMENTS = 14, SCRIPT_TEXT = 64 };

/* One call of a function that returns a status. */
typedef struct script_call {
    const char *function;
    int32_t status;                        /* what it returned */
    int32_t device;                        /* the calling thread's device when it was called; -1 where it has none */
    uint64_t context;                      /* the calling thread's context when it was called */
    uint64_t thread;                       /* names the calling thread */
    uint64_t arguments[SCRIPT_ARGUMENTS];  /* numbers and addresses in the function's own order, without results */
    char text[SCRIPT_TEXT];                /* the kernel's name, where one is looked for or launched */
    uint8_t params[SCRIPT_PARAMS];         /* of a launch: what the first kernel argument points to */
    char *note;                            /* longer texts, until the calls are forgotten; or null */
    uint64_t note_bytes;
} script_call;

enum { MAX_FAULTS = 8, MAX_CALLS = 1 << 16 };

/* Bytes that nobody wrote, and bytes around memory that nobody may write. */
enum { POISON = 0xa5, ZONE = 0x5a, ZONE_BYTES = 256 };

struct allocation {
    struct allocation *next;
    unsigned char *memory; /* between two zones */
    size_t size;
};

struct fault {
    const char *function;
    uint32_t nth;
    uint32_t seen;
    int status;
    int lasting;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t memory_limit = UINT64_MAX;
static int mute;
static int recording = 1;
static struct fault faults[MAX_FAULTS];
static int fault_count;
static script_call *calls;
static uint32_t call_count;
static struct allocation *allocations;
static uint64_t allocated;
static uint32_t made, misuses;

/* Fills in device and context of a call: the library's own affair. */
static void describe_thread(script_call *call);

__attribute__((constructor)) static void set_up_calls(void)
{
    calls = calloc(MAX_CALLS, sizeof *calls);
    if (!calls) abort();
}

/* The call under way, held with the lock from `begin` to `end`. */
static script_call *call;

static void begin(const char *function)
{
    pthread_mutex_lock(&lock);
    if (call_count == MAX_CALLS) abort(); /* a test that records so much has to forget now and then */
    call = &calls[call_count++];
    memset(call, 0, sizeof *call);
    call->function = function;
    call->thread = (uint64_t)pthread_self();
    describe_thread(call);
}

/* The status that the script puts in place of the call, or 0. */
static int scripted(void)
{
    int status = 0;
    for (int i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];
        if (fault->function && strcmp(fault->function, call->function) != 0) continue;
        fault->seen++;
        if (fault->seen == fault->nth || (fault->lasting && fault->seen > fault->nth)) status = fault->status;
    }
    return status;
}

static int end(int status)
{
    call->status = status;
    pthread_mutex_unlock(&lock);
    return status;
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static int has_room(size_t bytes) { return bytes <= memory_limit - allocated; }

static unsigned char *allocate(size_t bytes)
{
    struct allocation *allocation = malloc(sizeof *allocation);
    unsigned char *block = aligned_alloc(256, 2 * ZONE_BYTES + (bytes + 255) / 256 * 256);
    if (!allocation || !block) abort();
    memset(block, ZONE, ZONE_BYTES);
    memset(block + ZONE_BYTES, POISON, bytes);
    memset(block + ZONE_BYTES + bytes, ZONE, ZONE_BYTES);
    *allocation = (struct allocation){allocations, block + ZONE_BYTES, bytes};
    allocations = allocation;
    allocated += bytes;
    made++;
    return block + ZONE_BYTES;
}

static int is_zone(const unsigned char *bytes)
{
    for (int i = 0; i < ZONE_BYTES; i++)
        if (bytes[i] != ZONE) return 0;
    return 1;
}

/* Whether there was such memory. */
static int release(const void *memory)
{
    for (struct allocation **at = &allocations; *at; at = &(*at)->next) {
        struct allocation *found = *at;
        if (found->memory != memory) continue;
        if (!is_zone(found->memory - ZONE_BYTES) || !is_zone(found->memory + found->size)) misuses++;
        *at = found->next;
        allocated -= found->size;
        free(found->memory - ZONE_BYTES);
        free(found);
        return 1;
    }
    return 0;
}

static int is_allocated(const unsigned char *from, size_t bytes)
{
    for (struct allocation *at = allocations; at; at = at->next)
        if (from >= at->memory && (size_t)(from - at->memory) <= at->size && bytes <= at->size - (size_t)(from - at->memory))
            return 1;
    return 0;
}

/* --- texts ----------------------------------------------------------------------------------------------------------- */

/* A text that lives as long as the library. */
static const char *text_of(const char *format, int status)
{
    static struct {
        const char *format;
        int status;
        char text[64];
    } texts[256];
    if (mute) return NULL;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (texts[at].format && (texts[at].format != format || texts[at].status != status))
        if (++at == 256) abort();
    texts[at].format = format;
    texts[at].status = status;
    snprintf(texts[at].text, sizeof texts[at].text, format, status);
    pthread_mutex_unlock(&lock);
    return texts[at].text;
}

/* --- the test's side ------------------------------------------------------------------------------------------------- */

/* Bytes that all allocations together may have. */
void script_set_memory(uint64_t bytes) { memory_limit = bytes; }

/* Whether the functions for names and texts of errors return null. */
void script_set_mute(int32_t on) { mute = on; }

/* Whether calls are recorded and counted; without, a launch does nothing at all. */
void script_set_recording(int32_t on) { recording = on; }

/* The nth call of a function from now on, counted from 1, returns a status instead of doing its work. A null name stands for
 * any function. With `lasting`, so does every call after it. Functions that give something up give it up all the same: what
 * counts as a leak is a handle that nobody tried to give back. */
void script_fail(const char *function, uint32_t nth, int32_t status, int32_t lasting)
{
    pthread_mutex_lock(&lock);
    if (fault_count == MAX_FAULTS) abort();
    faults[fault_count++] = (struct fault){function ? strdup(function) : NULL, nth, 0, status, lasting};
    pthread_mutex_unlock(&lock);
}

/* No faults from now on, and nothing recorded. Handles stay. */
void script_forget(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < fault_count; i++) free((char *)faults[i].function);
    fault_count = 0;
    for (uint32_t i = 0; i < call_count; i++) free(calls[i].note);
    call_count = 0;
    pthread_mutex_unlock(&lock);
}

uint32_t script_calls(void) { return call_count; }

void script_read_call(uint32_t number, script_call *to)
{
    pthread_mutex_lock(&lock);
    if (number >= call_count) abort();
    *to = calls[number];
    pthread_mutex_unlock(&lock);
}

uint32_t script_live_allocations(void)
{
    uint32_t live = 0;
    pthread_mutex_lock(&lock);
    for (struct allocation *at = allocations; at; at = at->next) live++;
    pthread_mutex_unlock(&lock);
    return live;
}

/* Handles and allocations that were made since the library was loaded. */
uint32_t script_made(void) { return made; }

/* Things that no correct caller does: freeing or using what is not there. */
uint32_t script_misuses(void) { return misuses; }

#endif
