// Runs one program on the CPU: main NAME groups(3) size(3) in-words out-words n, the input on stdin, the output on stdout.
#include "all.hip"

struct entry {
    const char *name;
    program *run;
};

static const entry table[] = {
#define PROGRAM(NAME, ...) {#NAME, NAME},
#include "list.h"
#undef PROGRAM
};

int main(int count, char **words)
{
    if (count != 11) return 2;
    for (const entry &row : table)
        if (strcmp(row.name, words[1]) == 0) chosen = row.run;
    if (!chosen) return 3;
    for (int i = 0; i < 3; i++) {
        cpu.groups[i] = (u32)atoi(words[2 + i]);
        cpu.size[i] = (u32)atoi(words[5 + i]);
    }
    const size_t in_words = (size_t)atol(words[8]), out_words = (size_t)atol(words[9]);
    chosen_n = (u32)atoi(words[10]);
    u32 *in = (u32 *)calloc(in_words, 4), *out = (u32 *)calloc(out_words, 4);
    if (fread(in, 4, in_words, stdin) != in_words) return 4;
    chosen_in = in;
    chosen_out = out;
    for (cpu.group[2] = 0; cpu.group[2] < cpu.groups[2]; cpu.group[2]++)
        for (cpu.group[1] = 0; cpu.group[1] < cpu.groups[1]; cpu.group[1]++)
            for (cpu.group[0] = 0; cpu.group[0] < cpu.groups[0]; cpu.group[0]++) run_group();
    return fwrite(out, 4, out_words, stdout) == out_words ? 0 : 5;
}
