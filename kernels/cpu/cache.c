/* The sizes of this machine's caches, as Linux lists them in /sys. */
#include "cache.h"
#include <stdio.h>
#include <string.h>

#ifndef PLK_CACHES                                       /* tests list other machines */
#define PLK_CACHES "/sys/devices/system/cpu/cpu0/cache"
#endif

enum { OWN = 512 << 10, SHARE = 1 << 20, LEAST = 128 << 10 };    /* where nothing is listed; no less is believed */

typedef struct { int64_t own, share; } sizes;

static sizes found, given;

/* The text of a file of the cache `index` of the first processor, or "". */
static const char *text_of(int index, const char *name, char *text, size_t n)
{
    char path[sizeof PLK_CACHES + 64];
    snprintf(path, sizeof path, PLK_CACHES "/index%d/%s", index, name);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(text, (int)n, f))
        text[0] = 0;
    if (f)
        fclose(f);
    return text;
}

/* How many processors a list such as "0-3,8,10" names; 0: none. */
static int64_t listed(const char *text)
{
    int64_t n = 0;
    for (int low, high, used; sscanf(text, "%d%n", &low, &used) == 1; text += *text == ',') {
        text += used;
        high = low;
        if (*text == '-' && sscanf(text + 1, "%d%n", &high, &used) == 1)
            text += 1 + used;
        n += high >= low ? (int64_t)high - low + 1 : 0;
    }
    return n;
}

static sizes look(void)
{
    enum { LENGTH = 4096 };
    char text[LENGTH], unit = 0;
    sizes s = {0, 0};
    int64_t fewest = 0;
    for (int i = 0; *text_of(i, "type", text, sizeof text); i++) {
        long long bytes = 0;
        int is_code = !strncmp(text, "Instruction", 11);
        int read = sscanf(text_of(i, "size", text, sizeof text), "%lld%c", &bytes, &unit);
        if (read < 1 || bytes <= 0 || is_code)
            continue;
        bytes *= read == 2 && unit == 'K' ? 1 << 10 : read == 2 && unit == 'M' ? 1 << 20 : 1;
        int64_t n = listed(text_of(i, "shared_cpu_list", text, sizeof text));
        n = n < 1 ? 1 : n;
        fewest = fewest ? fewest : n;                 /* threads of a core share its first cache, too */
        if (n == fewest && bytes > s.own)
            s.own = bytes;
        s.share += bytes * fewest / n;
    }
    s.own = s.own < LEAST ? OWN : s.own;
    s.share = s.share < s.own ? s.own > SHARE ? s.own : SHARE : s.share;
    return s;
}

__attribute__((constructor)) static void find(void) { found = look(); }

int64_t plk_cache_own(void) { return given.own ? given.own : found.own; }
int64_t plk_cache_share(void) { return given.own ? given.share : found.share; }

void plk_cache_set(int64_t own, int64_t share)
{
    given = (sizes){own, share < own ? own : share};
}
