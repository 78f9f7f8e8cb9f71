/* A HIP runtime without a GPU that follows a test's script: it keeps count of handles, records every call with its arguments,
 * and fails when told to. Kernels are not run. What it checks of its arguments is what the real one checks.
 *
 * Compiled once, then linked once per set of exported functions, so that runtimes of other versions can be played.
 */
#include "../scripted/calls.h"
#include "script.h"

/* Statuses, of hipError_t. Plain integers here as in the crate. */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONFIGURATION = 9,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
};

enum { WARP_SIZE = 87 /* hipDeviceAttributeWarpSize */, TO_DEVICE = 1, FROM_DEVICE = 2 };

/* Sizes of the two property structs, and where each has the architecture's name. The product's name comes first in both. */
enum { SIZE_R0000 = 792, ARCHITECTURE_R0000 = 396, SIZE_R0600 = 1472, ARCHITECTURE_R0600 = 1160, PROPERTY_TEXT = 256 };

enum { MAX_DEVICES = 8, MAX_MODULES = 4096, MAX_FUNCTIONS = 256 };

struct module;

struct function {
    struct module *module;
    char name[SCRIPT_TEXT];
};

/* Never freed, so that the use of one that is unloaded is noticed. */
struct module {
    int live;
    int device;
    size_t size;
    unsigned char *image; /* while it is live */
    int functions;
    struct function function[MAX_FUNCTIONS];
};

static __thread int current_device;

static int devices = 1;
static struct {
    char architecture[PROPERTY_TEXT];
    int lanes;
} device_table[MAX_DEVICES];

static struct module *modules[MAX_MODULES];
static int module_count;

__attribute__((constructor)) static void set_up(void)
{
    for (int i = 0; i < MAX_DEVICES; i++) script_set_device(i, "gfx1151", 32);
}

static void describe_thread(script_call *call) { call->device = current_device; }

static int is_device(int device) { return device >= 0 && device < devices; }

/* --- the runtime ----------------------------------------------------------------------------------------------------- */

int hipInit(unsigned flags)
{
    begin("hipInit");
    call->arguments[0] = flags;
    int status = scripted();
    return end(status ? status : flags ? INVALID_VALUE : SUCCESS);
}

int hipGetDeviceCount(int *count)
{
    begin("hipGetDeviceCount");
    int status = scripted();
    if (!status) *count = devices;
    return end(status);
}

int hipGetDevice(int *device)
{
    if (!recording) {
        *device = current_device;
        return SUCCESS;
    }
    begin("hipGetDevice");
    int status = scripted();
    if (!status && devices == 0) status = NO_DEVICE;
    if (!status) *device = current_device;
    return end(status);
}

int hipSetDevice(int device)
{
    begin("hipSetDevice");
    call->arguments[0] = (uint64_t)(int64_t)device;
    int status = scripted();
    if (!status && !is_device(device)) status = INVALID_DEVICE;
    if (!status) current_device = device;
    return end(status);
}

int hipDeviceGetAttribute(int *value, int attribute, int device)
{
    begin("hipDeviceGetAttribute");
    call->arguments[0] = (uint64_t)attribute;
    call->arguments[1] = (uint64_t)(int64_t)device;
    int status = scripted();
    if (!status && !is_device(device)) status = INVALID_DEVICE;
    if (!status && attribute != WARP_SIZE) status = INVALID_VALUE;
    if (!status) *value = device_table[device].lanes;
    return end(status);
}

static int properties(const char *function, void *properties, int device, size_t size, size_t architecture)
{
    begin(function);
    call->arguments[0] = (uint64_t)(int64_t)device;
    int status = scripted();
    if (!status && !is_device(device)) status = INVALID_DEVICE;
    if (!status) {
        char *bytes = properties;
        memset(bytes, POISON, size);
        snprintf(bytes, PROPERTY_TEXT, "Scripted GPU %d", device);
        memcpy(bytes + architecture, device_table[device].architecture, PROPERTY_TEXT);
        /* Who reads this layout as the other one finds a text, and the wrong one. */
        if (architecture == ARCHITECTURE_R0600) strcpy(bytes + ARCHITECTURE_R0000, "gfx-read-as-R0000");
    }
    return end(status);
}

int hipGetDevicePropertiesR0600(void *to, int device)
{
    return properties("hipGetDevicePropertiesR0600", to, device, SIZE_R0600, ARCHITECTURE_R0600);
}

int hipGetDeviceProperties(void *to, int device)
{
    return properties("hipGetDeviceProperties", to, device, SIZE_R0000, ARCHITECTURE_R0000);
}

int hipRuntimeGetVersion(int *version)
{
    begin("hipRuntimeGetVersion");
    int status = scripted();
    if (!status) *version = 70212345; /* 7.2 */
    return end(status);
}

/* Where an ELF file's section headers end, which is where the compiler's code objects end. */
static size_t elf_size(const unsigned char *image)
{
    uint64_t offset;
    uint16_t size, count;
    memcpy(&offset, image + 0x28, sizeof offset);
    memcpy(&size, image + 0x3a, sizeof size);
    memcpy(&count, image + 0x3c, sizeof count);
    return offset + (size_t)size * count;
}

/* Arguments in the record: the address of the image, the flags of its header, its size. */
int hipModuleLoadData(struct module **module, const void *image)
{
    begin("hipModuleLoadData");
    call->arguments[0] = (uint64_t)(uintptr_t)image;
    int status = scripted();
    if (!status && memcmp(image, "\177ELF", 4) != 0) status = INVALID_IMAGE;
    if (status) return end(status);
    uint32_t flags;
    memcpy(&flags, (const unsigned char *)image + 0x30, sizeof flags);
    struct module *loaded = calloc(1, sizeof *loaded);
    if (!loaded || module_count == MAX_MODULES) abort();
    loaded->live = 1;
    loaded->device = current_device;
    loaded->size = elf_size(image);
    loaded->image = malloc(loaded->size);
    if (!loaded->image) abort();
    memcpy(loaded->image, image, loaded->size);
    call->arguments[1] = flags;
    call->arguments[2] = loaded->size;
    modules[module_count++] = loaded;
    made++;
    *module = loaded;
    return end(SUCCESS);
}

static int is_module(const struct module *module)
{
    for (int i = 0; i < module_count; i++)
        if (modules[i] == module) return module->live;
    return 0;
}

int hipModuleUnload(struct module *module)
{
    begin("hipModuleUnload");
    call->arguments[0] = (uint64_t)(uintptr_t)module;
    int status = scripted();
    if (!is_module(module)) {
        misuses++;
        return end(INVALID_HANDLE);
    }
    module->live = 0;
    free(module->image);
    module->image = NULL;
    return end(status);
}

int hipModuleGetFunction(struct function **function, struct module *module, const char *name)
{
    begin("hipModuleGetFunction");
    call->arguments[0] = (uint64_t)(uintptr_t)module;
    snprintf(call->text, sizeof call->text, "%s", name);
    int status = scripted();
    if (status) return end(status);
    if (!is_module(module)) {
        misuses++;
        return end(INVALID_HANDLE);
    }
    if (!memmem(module->image, module->size, name, strlen(name) + 1)) return end(NOT_FOUND);
    if (module->functions == MAX_FUNCTIONS || strlen(name) >= SCRIPT_TEXT) abort();
    struct function *found = &module->function[module->functions++];
    found->module = module;
    strcpy(found->name, name);
    *function = found;
    return end(SUCCESS);
}

/* Arguments in the record: grid, block, bytes of shared memory, stream, the address of `extra`, that of the module. */
int hipModuleLaunchKernel(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                          void **extra)
{
    if (!recording) return SUCCESS;
    begin("hipModuleLaunchKernel");
    const uint64_t numbers[10] = {
        grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, (uint64_t)(uintptr_t)stream,
        (uint64_t)(uintptr_t)extra, (uint64_t)(uintptr_t)function->module,
    };
    memcpy(call->arguments, numbers, sizeof numbers);
    memcpy(call->text, function->name, sizeof call->text);
    int status = scripted();
    if (status) return end(status);
    if (!is_module(function->module)) {
        misuses++;
        return end(INVALID_HANDLE);
    }
    if (function->module->device != current_device) {
        misuses++;
        return end(INVALID_HANDLE);
    }
    if (!grid_x || !grid_y || !grid_z || grid_y > 65536 || grid_z > 65536 || (uint64_t)grid_x * block_x > UINT32_MAX ||
        (uint64_t)block_x * block_y * block_z - 1 >= 1024) {
        misuses++;
        return end(INVALID_CONFIGURATION);
    }
    memcpy(call->params, arguments[0], sizeof call->params);
    return end(SUCCESS);
}

int hipMalloc(void **memory, size_t bytes)
{
    begin("hipMalloc");
    call->arguments[0] = bytes;
    int status = scripted();
    if (status) return end(status);
    if (bytes == 0) { /* as the real one: no memory, and no error */
        *memory = NULL;
        return end(SUCCESS);
    }
    if (!has_room(bytes)) return end(OUT_OF_MEMORY);
    *memory = allocate(bytes);
    return end(SUCCESS);
}

int hipFree(void *memory)
{
    begin("hipFree");
    call->arguments[0] = (uint64_t)(uintptr_t)memory;
    int status = scripted();
    if (!memory) return end(status);
    if (release(memory)) return end(status);
    misuses++;
    return end(INVALID_VALUE);
}

int hipMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    begin("hipMemcpy");
    call->arguments[0] = (uint64_t)(uintptr_t)to;
    call->arguments[1] = (uint64_t)(uintptr_t)from;
    call->arguments[2] = bytes;
    call->arguments[3] = (uint64_t)kind;
    int status = scripted();
    if (status) return end(status);
    if (kind != TO_DEVICE && kind != FROM_DEVICE) return end(INVALID_VALUE);
    if (bytes && !is_allocated(kind == TO_DEVICE ? to : from, bytes)) {
        misuses++;
        return end(INVALID_VALUE);
    }
    memcpy(to, from, bytes);
    return end(SUCCESS);
}

int hipStreamSynchronize(void *stream)
{
    begin("hipStreamSynchronize");
    call->arguments[0] = (uint64_t)(uintptr_t)stream;
    return end(scripted());
}

const char *hipGetErrorName(int status) { return text_of("scriptedName(%d)", status); }

const char *hipGetErrorString(int status) { return text_of("the script's own words for %d", status); }

/* --- the test's side ------------------------------------------------------------------------------------------------- */

void script_set_devices(int32_t count) { devices = count < MAX_DEVICES ? count : MAX_DEVICES; }

void script_set_device(int32_t device, const char *architecture, int32_t lanes)
{
    memset(device_table[device].architecture, POISON, PROPERTY_TEXT);
    snprintf(device_table[device].architecture, PROPERTY_TEXT, "%s", architecture);
    device_table[device].lanes = lanes;
}

uint32_t script_live_modules(void)
{
    uint32_t live = 0;
    for (int i = 0; i < module_count; i++) live += modules[i]->live;
    return live;
}

int32_t script_current_device(void) { return current_device; }

void script_set_current_device(int32_t device) { current_device = device; }
