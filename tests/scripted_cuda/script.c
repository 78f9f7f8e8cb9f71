/* A CUDA driver without a GPU and an NVRTC without a compiler that follow a test's script: they keep count of handles, record
 * every call with its arguments, and fail when told to. Nothing is compiled and no kernel is run. What they check of their
 * arguments is what the real ones check; what only undefined behaviour would follow from, they count as misuse.
 *
 * Compiled once for each version that it claims to be (macros DRIVER_VERSION, NVRTC_MAJOR, NVRTC_MINOR), then linked once per set of
 * exported functions.
 */
#include "../scripted/calls.h"
#include "script.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <time.h>

/* Statuses, of CUresult and nvrtcResult. Plain integers here as in the crate. */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    CONTEXT_IS_DESTROYED = 709,
    CAPTURE_UNSUPPORTED = 900,
};
enum { NVRTC_INVALID_INPUT = 3, NVRTC_INVALID_PROGRAM = 4, NVRTC_INVALID_OPTION = 5, NVRTC_COMPILATION = 6 };

/* CUdevice_attribute. */
enum { L2_CACHE_SIZE = 38, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };
/* CUlaunchAttributeID. */
enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

enum { MAX_DEVICES = 8, MAX_CONTEXTS = 4096, MAX_DEPTH = 16, MAX_MODULES = 1 << 15, MAX_FUNCTIONS = 4, MAX_CAPTURING = 16 };
enum { MAX_ARCHITECTURES = 64 };

/* Never reused, so that the use of one that has ended is noticed. */
struct context {
    int live;
    int device;
};

struct module;
struct function {
    struct module *module;
    char name[SCRIPT_TEXT];
};

struct module {
    int live;
    struct context *context;
    size_t size;
    unsigned char *image; /* while it is live */
    int functions;
    struct function function[MAX_FUNCTIONS];
};

static int initialised;
static int driver_version = DRIVER_VERSION;
static int devices = 1;
static struct {
    int major, minor, l2_bytes;
    struct context *primary; /* while it is retained */
    uint32_t references;
} device_table[MAX_DEVICES];

static struct context contexts[MAX_CONTEXTS];
static int context_count;
static __thread struct context *stack[MAX_DEPTH];
static __thread int depth;

static struct module *modules[MAX_MODULES];
static int module_count;
static uint64_t capturing[MAX_CAPTURING];
static int capturing_count;

__attribute__((constructor)) static void set_up(void)
{
    for (int i = 0; i < MAX_DEVICES; i++) script_set_device(i, 9, 0, 50 << 20);
}

static struct context *current(void) { return depth ? stack[depth - 1] : NULL; }

static void describe_thread(script_call *call)
{
    call->device = current() ? current()->device : -1;
    call->context = (uint64_t)(uintptr_t)current();
}

static int is_device(int device) { return device >= 0 && device < devices; }

static struct context *new_context(int device)
{
    if (context_count == MAX_CONTEXTS) abort();
    struct context *context = &contexts[context_count++];
    *context = (struct context){1, device};
    return context;
}

/* What was made in a context ends with it. */
static void end_context(struct context *context)
{
    context->live = 0;
    for (int i = 0; i < module_count; i++)
        if (modules[i]->live && modules[i]->context == context) {
            modules[i]->live = 0;
            free(modules[i]->image);
        }
}

/* The first thing wrong with a call that works in the thread's context. */
static int in_context(void)
{
    if (!initialised) return NOT_INITIALIZED;
    if (!current()) return INVALID_CONTEXT;
    return current()->live ? SUCCESS : CONTEXT_IS_DESTROYED;
}

/* And with one that no capture allows. */
static int in_context_uncaptured(void)
{
    int status = in_context();
    return status ? status : capturing_count ? CAPTURE_UNSUPPORTED : SUCCESS;
}

/* --- the driver: devices and contexts ---------------------------------------------------------------------------------- */

unsigned cuInit(unsigned flags)
{
    begin("cuInit");
    call->arguments[0] = flags;
    int status = scripted();
    if (!status && flags) status = INVALID_VALUE;
    if (!status) initialised = 1;
    return end(status);
}

unsigned cuDriverGetVersion(int *version)
{
    begin("cuDriverGetVersion");
    int status = scripted();
    if (!status) *version = driver_version;
    return end(status);
}

unsigned cuDeviceGetCount(int *count)
{
    begin("cuDeviceGetCount");
    int status = scripted();
    if (!status && !initialised) status = NOT_INITIALIZED;
    if (!status) *count = devices;
    return end(status);
}

unsigned cuDeviceGet(int *device, int ordinal)
{
    begin("cuDeviceGet");
    call->arguments[0] = (uint64_t)(int64_t)ordinal;
    int status = scripted();
    if (!status && !initialised) status = NOT_INITIALIZED;
    if (!status && !is_device(ordinal)) status = INVALID_DEVICE;
    if (!status) *device = ordinal;
    return end(status);
}

unsigned cuDeviceGetName(char *name, int bytes, int device)
{
    begin("cuDeviceGetName");
    call->arguments[0] = (uint64_t)bytes;
    call->arguments[1] = (uint64_t)(int64_t)device;
    int status = scripted();
    if (!status && !initialised) status = NOT_INITIALIZED;
    if (!status && !is_device(device)) status = INVALID_DEVICE;
    if (!status) snprintf(name, (size_t)bytes, "Scripted GPU %d", device);
    return end(status);
}

unsigned cuDeviceGetAttribute(int *value, int attribute, int device)
{
    begin("cuDeviceGetAttribute");
    call->arguments[0] = (uint64_t)attribute;
    call->arguments[1] = (uint64_t)(int64_t)device;
    int status = scripted();
    if (!status && !initialised) status = NOT_INITIALIZED;
    if (!status && !is_device(device)) status = INVALID_DEVICE;
    if (status) return end(status);
    switch (attribute) {
    case L2_CACHE_SIZE: *value = device_table[device].l2_bytes; break;
    case CAPABILITY_MAJOR: *value = device_table[device].major; break;
    case CAPABILITY_MINOR: *value = device_table[device].minor; break;
    default: status = INVALID_VALUE;
    }
    return end(status);
}

static struct context *retain(int device)
{
    if (device_table[device].references++ == 0) {
        device_table[device].primary = new_context(device);
        made++;
    }
    return device_table[device].primary;
}

static int release_primary(int device)
{
    if (!is_device(device) || device_table[device].references == 0) return 0;
    if (--device_table[device].references == 0) {
        end_context(device_table[device].primary);
        device_table[device].primary = NULL;
    }
    return 1;
}

unsigned cuDevicePrimaryCtxRetain(struct context **context, int device)
{
    begin("cuDevicePrimaryCtxRetain");
    call->arguments[0] = (uint64_t)(int64_t)device;
    int status = scripted();
    if (!status && !initialised) status = NOT_INITIALIZED;
    if (!status && !is_device(device)) status = INVALID_DEVICE;
    if (!status) *context = retain(device);
    return end(status);
}

unsigned cuDevicePrimaryCtxRelease_v2(int device)
{
    begin("cuDevicePrimaryCtxRelease_v2");
    call->arguments[0] = (uint64_t)(int64_t)device;
    int status = scripted();
    if (!release_primary(device)) {
        misuses++;
        status = INVALID_CONTEXT;
    }
    return end(status);
}

unsigned cuCtxGetCurrent(struct context **context)
{
    if (!recording) {
        *context = current();
        return SUCCESS;
    }
    begin("cuCtxGetCurrent");
    int status = scripted();
    if (!status && !initialised) status = NOT_INITIALIZED;
    if (!status) *context = current();
    return end(status);
}

unsigned cuCtxGetDevice(int *device)
{
    begin("cuCtxGetDevice");
    int status = scripted();
    if (!status) status = in_context();
    if (!status) *device = current()->device;
    return end(status);
}

unsigned cuCtxPushCurrent_v2(struct context *context)
{
    if (!recording) {
        stack[depth++] = context;
        return SUCCESS;
    }
    begin("cuCtxPushCurrent_v2");
    call->arguments[0] = (uint64_t)(uintptr_t)context;
    int status = scripted();
    if (!status && context && !context->live) status = CONTEXT_IS_DESTROYED;
    if (!status && !context) status = INVALID_CONTEXT;
    if (!status) {
        if (depth == MAX_DEPTH) abort(); /* something pushes and does not pop */
        stack[depth++] = context;
    }
    return end(status);
}

unsigned cuCtxPopCurrent_v2(struct context **context)
{
    if (!recording) {
        *context = stack[--depth];
        return SUCCESS;
    }
    begin("cuCtxPopCurrent_v2");
    int status = scripted();
    if (!status && !depth) {
        misuses++;
        status = INVALID_CONTEXT;
    }
    if (!status) *context = stack[--depth];
    return end(status);
}

/* --- CUBINs ------------------------------------------------------------------------------------------------------------ */

/* What the scripted compiler makes and the scripted driver takes: this head, then the names of the kernels, each between two
 * line feeds, then everything that was compiled. */
struct cubin {
    char magic[16];
    uint64_t bytes; /* of the whole */
    uint64_t hash;  /* of what follows */
    int32_t architecture;
    int32_t nvrtc_major;
};
static const char MAGIC[16] = "\177ELF a script's";

static uint64_t hash_of(const void *from, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)from)[i]) * 0x100000001b3;
    return hash;
}

static uint64_t hash_of_cubin(const void *image)
{
    struct cubin head;
    memcpy(&head, image, sizeof head);
    const size_t from = offsetof(struct cubin, architecture);
    return hash_of((const char *)image + from, head.bytes - from);
}

/* Arguments in the record: the address of the image, its architecture, its size. */
unsigned cuModuleLoadData(struct module **module, const void *image)
{
    begin("cuModuleLoadData");
    call->arguments[0] = (uint64_t)(uintptr_t)image;
    int status = scripted();
    if (!status) status = in_context_uncaptured();
    if (status) return end(status);
    struct cubin head;
    /* The real one is not told the length either, and reads on wherever the image sends it. */
    if ((uintptr_t)image < 4096 || memcmp(image, MAGIC, sizeof MAGIC) != 0) {
        misuses++;
        return end(INVALID_IMAGE);
    }
    memcpy(&head, image, sizeof head);
    if (head.hash != hash_of_cubin(image)) {
        misuses++;
        return end(INVALID_IMAGE);
    }
    call->arguments[1] = (uint64_t)head.architecture;
    call->arguments[2] = head.bytes;
    const int device = current()->device, major = device_table[device].major;
    if (head.architecture / 10 != major || head.architecture % 10 > device_table[device].minor) return end(NO_BINARY_FOR_GPU);
    if (head.nvrtc_major > driver_version / 1000) return end(INVALID_IMAGE);
    struct module *loaded = calloc(1, sizeof *loaded);
    if (!loaded || module_count == MAX_MODULES) abort();
    *loaded = (struct module){.live = 1, .context = current(), .size = head.bytes, .image = malloc(head.bytes)};
    if (!loaded->image) abort();
    memcpy(loaded->image, image, head.bytes);
    modules[module_count++] = loaded;
    made++;
    *module = loaded;
    return end(SUCCESS);
}

static int is_module(const struct module *module)
{
    for (int i = module_count; i > 0; i--)
        if (modules[i - 1] == module) return module->live;
    return 0;
}

unsigned cuModuleUnload(struct module *module)
{
    begin("cuModuleUnload");
    call->arguments[0] = (uint64_t)(uintptr_t)module;
    int status = scripted();
    if (!is_module(module) || module->context != current()) {
        misuses++;
        return end(INVALID_HANDLE);
    }
    module->live = 0;
    free(module->image);
    module->image = NULL;
    return end(status);
}

unsigned cuModuleGetFunction(struct function **function, struct module *module, const char *name)
{
    begin("cuModuleGetFunction");
    call->arguments[0] = (uint64_t)(uintptr_t)module;
    snprintf(call->text, sizeof call->text, "%s", name);
    int status = scripted();
    if (status) return end(status);
    if (!is_module(module)) {
        misuses++;
        return end(INVALID_HANDLE);
    }
    char line[SCRIPT_TEXT + 2];
    const int length = snprintf(line, sizeof line, "\n%s\n", name);
    if ((size_t)length >= sizeof line || !memmem(module->image, module->size, line, (size_t)length)) return end(NOT_FOUND);
    if (module->functions == MAX_FUNCTIONS) abort();
    struct function *found = &module->function[module->functions++];
    found->module = module;
    strcpy(found->name, name);
    *function = found;
    return end(SUCCESS);
}

/* --- the driver: work -------------------------------------------------------------------------------------------------- */

/* Under the lock, in the call that is recorded. */
static int launch(const struct function *function, const uint64_t *numbers, void **arguments)
{
    memcpy(call->arguments, numbers, 10 * sizeof *numbers);
    memcpy(call->text, function->name, sizeof call->text);
    int status = scripted();
    if (!status) status = in_context();
    if (status) return status;
    if (!is_module(function->module) || function->module->context != current()) {
        misuses++;
        return INVALID_HANDLE;
    }
    const uint64_t x = numbers[0], y = numbers[1], z = numbers[2], threads = numbers[3] * numbers[4] * numbers[5];
    if (!x || !y || !z || x > INT32_MAX || y > 65535 || z > 65535 || threads - 1 >= 1024) {
        misuses++;
        return INVALID_VALUE;
    }
    memcpy(call->params, arguments[0], sizeof call->params);
    return SUCCESS;
}

/* Arguments in the record: grid, block, bytes of shared memory, stream, the address of `extra`, that of the module. */
unsigned cuLaunchKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments, void **extra)
{
    if (!recording) return SUCCESS;
    begin("cuLaunchKernel");
    const uint64_t numbers[10] = {
        grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, (uint64_t)(uintptr_t)stream,
        (uint64_t)(uintptr_t)extra, (uint64_t)(uintptr_t)function->module,
    };
    return end(launch(function, numbers, arguments));
}

/* CUlaunchConfig and CUlaunchAttribute of CUDA 12, said again. */
struct launch_attribute {
    uint32_t id;
    char pad[4];
    union {
        char pad[64];
        int32_t number;
    } value;
};
struct launch_config {
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
    struct launch_attribute *attributes;
    uint32_t attribute_count;
};

/* Arguments in the record: as above, then how many attributes there are, and number and value of the first one. */
unsigned cuLaunchKernelEx(const struct launch_config *config, struct function *function, void **arguments, void **extra)
{
    if (!recording) return SUCCESS;
    begin("cuLaunchKernelEx");
    const uint64_t numbers[10] = {
        config->grid[0], config->grid[1], config->grid[2], config->block[0], config->block[1], config->block[2],
        config->shared_bytes, (uint64_t)(uintptr_t)config->stream, (uint64_t)(uintptr_t)extra,
        (uint64_t)(uintptr_t)function->module,
    };
    int status = launch(function, numbers, arguments);
    call->arguments[10] = config->attribute_count;
    if (config->attribute_count) {
        call->arguments[11] = config->attributes[0].id;
        call->arguments[12] = (uint64_t)config->attributes[0].value.number;
        /* Before sm_90 the attribute has no meaning: as strict as a driver may be. */
        const int known = config->attributes[0].id == PROGRAMMATIC_STREAM_SERIALIZATION;
        if (!status && known && device_table[current()->device].major < 9) status = INVALID_VALUE;
    }
    return end(status);
}

unsigned cuMemAlloc_v2(uint64_t *memory, size_t bytes)
{
    begin("cuMemAlloc_v2");
    call->arguments[0] = bytes;
    int status = scripted();
    if (!status) status = in_context_uncaptured();
    if (!status && !bytes) status = INVALID_VALUE; /* as the real one */
    if (!status && !has_room(bytes)) status = OUT_OF_MEMORY;
    if (!status) *memory = (uint64_t)(uintptr_t)allocate(bytes);
    return end(status);
}

unsigned cuMemFree_v2(uint64_t memory)
{
    begin("cuMemFree_v2");
    call->arguments[0] = memory;
    int status = scripted();
    if (!current() || !release((void *)(uintptr_t)memory)) {
        misuses++;
        if (!status) status = INVALID_VALUE;
    }
    return end(status);
}

/* Arguments in the record: where to, where from, bytes. */
static unsigned copy(const char *function, void *to, const void *from, size_t bytes, const void *device)
{
    begin(function);
    call->arguments[0] = (uint64_t)(uintptr_t)to;
    call->arguments[1] = (uint64_t)(uintptr_t)from;
    call->arguments[2] = bytes;
    int status = scripted();
    if (!status) status = in_context_uncaptured();
    if (status) return end(status);
    if (bytes && !is_allocated(device, bytes)) {
        misuses++;
        return end(INVALID_VALUE);
    }
    memcpy(to, from, bytes);
    return end(SUCCESS);
}

unsigned cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    return copy("cuMemcpyHtoD_v2", (void *)(uintptr_t)to, from, bytes, (void *)(uintptr_t)to);
}

unsigned cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    return copy("cuMemcpyDtoH_v2", to, (void *)(uintptr_t)from, bytes, (void *)(uintptr_t)from);
}

unsigned cuStreamSynchronize(void *stream)
{
    begin("cuStreamSynchronize");
    call->arguments[0] = (uint64_t)(uintptr_t)stream;
    int status = scripted();
    return end(status ? status : in_context_uncaptured());
}

unsigned cuStreamIsCapturing(void *stream, unsigned *state)
{
    begin("cuStreamIsCapturing");
    call->arguments[0] = (uint64_t)(uintptr_t)stream;
    int status = scripted();
    if (!status) status = in_context();
    if (!status) {
        *state = 0;
        for (int i = 0; i < capturing_count; i++) *state |= capturing[i] == (uint64_t)(uintptr_t)stream;
    }
    return end(status);
}

unsigned cuGetErrorName(unsigned status, const char **text)
{
    *text = text_of("scriptedName(%d)", (int)status);
    return *text ? SUCCESS : INVALID_VALUE;
}

unsigned cuGetErrorString(unsigned status, const char **text)
{
    *text = text_of("the script's own words for %d", (int)status);
    return *text ? SUCCESS : INVALID_VALUE;
}

/* --- NVRTC ------------------------------------------------------------------------------------------------------------- */

/* Parts of a text in the record end in this. */
enum { PART = 0x1e };

struct text {
    char *bytes;
    size_t length;
};

static void add(struct text *to, const void *from, size_t bytes)
{
    to->bytes = realloc(to->bytes, to->length + bytes + 1);
    if (!to->bytes) abort();
    memcpy(to->bytes + to->length, from, bytes);
    to->length += bytes;
    to->bytes[to->length] = 0;
}

static void add_text(struct text *to, const char *from) { add(to, from, strlen(from)); }

static void add_part(struct text *to, const char *from)
{
    const char part = PART;
    add_text(to, from);
    add(to, &part, 1);
}

/* Never reused. */
struct program {
    int live;
    int compiled;
    struct text parts; /* name and text of the source, then of each header */
    struct text kernels; /* each between two line feeds */
    struct text log;
    struct text cubin;
};

enum { MAX_PROGRAMS = 1 << 15 };
static struct program *programs[MAX_PROGRAMS];
static int program_count;
static int nvrtc_major = NVRTC_MAJOR, nvrtc_minor = NVRTC_MINOR;
static int32_t architectures[MAX_ARCHITECTURES] = {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90};
static int architecture_count = 14;
static char *log_text;
static int64_t cubin_bytes = -1;
static pthread_cond_t met = PTHREAD_COND_INITIALIZER;
static uint32_t meeting, meeting_milliseconds, compiling, most_compiling;

unsigned nvrtcVersion(int *major, int *minor)
{
    begin("nvrtcVersion");
    int status = scripted();
    if (!status) *major = nvrtc_major, *minor = nvrtc_minor;
    return end(status);
}

unsigned nvrtcGetNumSupportedArchs(int *count)
{
    begin("nvrtcGetNumSupportedArchs");
    int status = scripted();
    if (!status) *count = architecture_count;
    return end(status);
}

unsigned nvrtcGetSupportedArchs(int *to)
{
    begin("nvrtcGetSupportedArchs");
    int status = scripted();
    if (!status) memcpy(to, architectures, sizeof *architectures * (size_t)architecture_count);
    return end(status);
}

const char *nvrtcGetErrorString(unsigned status) { return text_of("scriptedNvrtcName(%d)", (int)status); }

/* In the record: how many headers, and as a text name and text of the source, then of each header. */
unsigned nvrtcCreateProgram(struct program **program, const char *source, const char *name, int headers,
                            const char *const *header_texts, const char *const *header_names)
{
    begin("nvrtcCreateProgram");
    call->arguments[0] = (uint64_t)headers;
    struct program *created = calloc(1, sizeof *created);
    if (!created || program_count == MAX_PROGRAMS) abort();
    add_part(&created->parts, name);
    add_part(&created->parts, source);
    for (int i = 0; i < headers; i++) {
        add_part(&created->parts, header_names[i]);
        add_part(&created->parts, header_texts[i]);
    }
    call->note = strdup(created->parts.bytes);
    call->note_bytes = created->parts.length;
    int status = scripted();
    if (status) {
        free(created->parts.bytes);
        free(created);
        return end(status);
    }
    /* The kernels: `__global__`, and the last word before the next parameter list that is no attribute's. */
    add_text(&created->kernels, "\n");
    for (const char *at = source; (at = strstr(at, "__global__"));) {
        at += strlen("__global__");
        const char *const bounds = strstr(at, "__launch_bounds__");
        const char *open = strchr(at, '(');
        if (bounds && open && bounds < open) open = strchr(open + 1, '(');
        const char *start = open;
        while (start && start > at && (start[-1] == '_' || isalnum((unsigned char)start[-1]))) start--;
        if (start) add(&created->kernels, start, (size_t)(open - start));
        add_text(&created->kernels, "\n");
    }
    created->live = 1;
    programs[program_count++] = created;
    made++;
    *program = created;
    return end(SUCCESS);
}

static int is_program(const struct program *program)
{
    for (int i = program_count; i > 0; i--)
        if (programs[i - 1] == program) return program->live;
    return 0;
}

static void end_program(struct program *program)
{
    program->live = 0;
    struct text *const texts[] = {&program->parts, &program->kernels, &program->log, &program->cubin};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        free(texts[i]->bytes);
        *texts[i] = (struct text){NULL, 0};
    }
}

unsigned nvrtcDestroyProgram(struct program **program)
{
    begin("nvrtcDestroyProgram");
    call->arguments[0] = (uint64_t)(uintptr_t)*program;
    int status = scripted();
    if (!is_program(*program)) {
        misuses++;
        return end(NVRTC_INVALID_PROGRAM);
    }
    end_program(*program);
    *program = NULL;
    return end(status);
}

/* A header that is included and was not handed over; null where there is none. */
static const char *missing_header(const struct text *parts)
{
    static char missing[256];
    for (const char *at = parts->bytes; (at = strstr(at, "\n#include "));) {
        at += strlen("\n#include ") + 1;
        const size_t length = strcspn(at, "\">");
        if (length >= sizeof missing - 2) abort();
        snprintf(missing, sizeof missing, "%c%.*s%c", PART, (int)length, at, PART);
        if (!strstr(parts->bytes, missing)) {
            snprintf(missing, sizeof missing, "%.*s", (int)length, at);
            return missing;
        }
    }
    return NULL;
}

/* What the compiler makes of a program, under the lock. */
static int compile(struct program *program, int count, const char *const *options)
{
    int architecture = 0, status = SUCCESS;
    for (int i = 0; i < count; i++) {
        static const char ARCHITECTURE[] = "--gpu-architecture=sm_";
        if (options[i][0] != '-') status = NVRTC_INVALID_OPTION;
        if (strncmp(options[i], ARCHITECTURE, strlen(ARCHITECTURE)) == 0) architecture = atoi(options[i] + strlen(ARCHITECTURE));
    }
    int known = 0;
    for (int i = 0; i < architecture_count; i++) known |= architectures[i] == architecture;
    if (!known) status = NVRTC_INVALID_OPTION;
    const char *const missing = missing_header(&program->parts);
    if (!status && missing) {
        add_text(&program->log, "error: could not open source file \"");
        add_text(&program->log, missing);
        add_text(&program->log, "\"\n");
        status = NVRTC_COMPILATION;
    }
    if (status) return status;

    struct cubin head = {.architecture = architecture, .nvrtc_major = nvrtc_major};
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    struct text *const cubin = &program->cubin;
    add(cubin, &head, sizeof head);
    add(cubin, program->kernels.bytes, program->kernels.length);
    for (int i = 0; i < count; i++) add_part(cubin, options[i]);
    add(cubin, program->parts.bytes, program->parts.length);
    head.bytes = cubin->length;
    memcpy(cubin->bytes, &head, sizeof head);
    head.hash = hash_of_cubin(cubin->bytes);
    memcpy(cubin->bytes, &head, sizeof head);
    program->compiled = 1;
    return SUCCESS;
}

/* Until the compilations that are to meet have met; lets go of the lock meanwhile. */
static void meet(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += meeting_milliseconds / 1000;
    until.tv_nsec += meeting_milliseconds % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    compiling++;
    if (compiling > most_compiling) most_compiling = compiling;
    pthread_cond_broadcast(&met);
    while (most_compiling < meeting && pthread_cond_timedwait(&met, &lock, &until) != ETIMEDOUT) {}
    compiling--;
}

/* In the record: the program and how many options, and as a text the options. */
unsigned nvrtcCompileProgram(struct program *program, int count, const char *const *options)
{
    begin("nvrtcCompileProgram");
    call->arguments[0] = (uint64_t)(uintptr_t)program;
    call->arguments[1] = (uint64_t)count;
    struct text note = {NULL, 0};
    for (int i = 0; i < count; i++) add_part(&note, options[i]);
    call->note = note.bytes;
    call->note_bytes = note.length;
    if (!is_program(program) || program->compiled) {
        misuses++;
        return end(NVRTC_INVALID_PROGRAM);
    }
    int status = scripted();
    if (status) add_text(&program->log, "kernel.cu(7): error: the script wants it so\n");
    if (!status) status = compile(program, count, options);
    if (log_text) {
        program->log.length = 0;
        add_text(&program->log, log_text);
    }
    call->status = status; /* before another call takes the place of this one */
    meet();
    pthread_mutex_unlock(&lock);
    return (unsigned)status;
}

/* Number or bytes of a program that has them. */
static unsigned tell(const char *function, struct program *program, int needs_cubin, const struct text *text, size_t *size,
                     char *to, size_t bytes)
{
    begin(function);
    call->arguments[0] = (uint64_t)(uintptr_t)program;
    int status = scripted();
    if (!is_program(program) || (needs_cubin && !program->compiled)) {
        misuses++;
        return end(NVRTC_INVALID_PROGRAM);
    }
    if (!status && size) *size = bytes;
    if (!status && to) {
        memset(to, 0, bytes);
        if (text->length) memcpy(to, text->bytes, text->length < bytes ? text->length : bytes);
    }
    return end(status);
}

static size_t bytes_of_cubin(const struct program *program)
{
    return cubin_bytes < 0 ? program->cubin.length : (size_t)cubin_bytes;
}

unsigned nvrtcGetProgramLogSize(struct program *program, size_t *bytes)
{
    return tell("nvrtcGetProgramLogSize", program, 0, NULL, bytes, NULL, program->log.length + 1);
}

unsigned nvrtcGetProgramLog(struct program *program, char *to)
{
    return tell("nvrtcGetProgramLog", program, 0, &program->log, NULL, to, program->log.length + 1);
}

unsigned nvrtcGetCUBINSize(struct program *program, size_t *bytes)
{
    return tell("nvrtcGetCUBINSize", program, 1, NULL, bytes, NULL, bytes_of_cubin(program));
}

unsigned nvrtcGetCUBIN(struct program *program, char *to)
{
    return tell("nvrtcGetCUBIN", program, 1, &program->cubin, NULL, to, bytes_of_cubin(program));
}

/* --- the test's side ------------------------------------------------------------------------------------------------- */

void script_set_driver(int32_t version) { driver_version = version; }

void script_set_devices(int32_t count) { devices = count < MAX_DEVICES ? count : MAX_DEVICES; }

void script_set_device(int32_t device, int32_t major, int32_t minor, int32_t l2_bytes)
{
    device_table[device].major = major;
    device_table[device].minor = minor;
    device_table[device].l2_bytes = l2_bytes;
}

uint64_t script_make_context(int32_t device)
{
    initialised = 1;
    return (uint64_t)(uintptr_t)new_context(device);
}

void script_end_context(uint64_t context) { end_context((struct context *)(uintptr_t)context); }

uint64_t script_retain_primary(int32_t device)
{
    initialised = 1;
    return (uint64_t)(uintptr_t)retain(device);
}

void script_release_primary(int32_t device)
{
    if (!release_primary(device)) misuses++;
}

uint32_t script_primary_references(int32_t device) { return device_table[device].references; }

void script_clear_stack(void) { depth = 0; }

void script_push(uint64_t context)
{
    if (depth == MAX_DEPTH) abort();
    stack[depth++] = (struct context *)(uintptr_t)context;
}

uint32_t script_depth(void) { return (uint32_t)depth; }

uint64_t script_current(void) { return (uint64_t)(uintptr_t)current(); }

void script_set_capturing(uint64_t stream, int32_t on)
{
    int kept = 0;
    for (int i = 0; i < capturing_count; i++)
        if (capturing[i] != stream) capturing[kept++] = capturing[i];
    capturing_count = kept;
    if (!on) return;
    if (capturing_count == MAX_CAPTURING) abort();
    capturing[capturing_count++] = stream;
}

void script_reset(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < context_count; i++)
        if (contexts[i].live) end_context(&contexts[i]);
    context_count = 0;
    for (int i = 0; i < MAX_DEVICES; i++) device_table[i].references = 0;
    for (int i = 0; i < program_count; i++)
        if (programs[i]->live) end_program(programs[i]);
    while (allocations) release(allocations->memory);
    capturing_count = 0;
    depth = 0;
    pthread_mutex_unlock(&lock);
}

uint32_t script_live_modules(void)
{
    uint32_t live = 0;
    for (int i = 0; i < module_count; i++) live += (uint32_t)modules[i]->live;
    return live;
}

uint32_t script_live_programs(void)
{
    uint32_t live = 0;
    for (int i = 0; i < program_count; i++) live += (uint32_t)programs[i]->live;
    return live;
}

void script_set_nvrtc(int32_t major, int32_t minor) { nvrtc_major = major, nvrtc_minor = minor; }

void script_set_architectures(const int32_t *from, int32_t count)
{
    if (count > MAX_ARCHITECTURES) abort();
    memcpy(architectures, from, sizeof *from * (size_t)count);
    architecture_count = count;
}

void script_set_log(const char *text)
{
    free(log_text);
    log_text = text ? strdup(text) : NULL;
}

void script_set_cubin_bytes(int64_t bytes) { cubin_bytes = bytes; }

void script_set_meeting(uint32_t count, uint32_t milliseconds)
{
    pthread_mutex_lock(&lock);
    meeting = count;
    meeting_milliseconds = milliseconds;
    most_compiling = 0;
    pthread_mutex_unlock(&lock);
}

uint32_t script_most_compiling(void) { return most_compiling; }
