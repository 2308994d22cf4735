/* SPDX-License-Identifier: MIT
 * The vDSO is in each process. Its dynamic section tells of its symbols (elf(5), vdso(7)). */
#include "sys/clock.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#ifdef __aarch64__
#define NAME "__kernel_clock_gettime"
#else
#define NAME "__vdso_clock_gettime"
#endif

clock_read *stint_clock_find(void) {
    const char *image = (const char *)getauxval(AT_SYSINFO_EHDR), *base = NULL;
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Dyn) *entry = NULL;
    ElfW(Addr) symbols = 0, names = 0;

    if (image == NULL) /* none is mapped, or a tool hides it */
        return clock_gettime;
    const ElfW(Phdr) *segment = (const void *)(image + header->e_phoff);
    for (uint16_t i = 0; i < header->e_phnum; i++) {
        if (segment[i].p_type == PT_LOAD && base == NULL) /* old kernels link it far away */
            base = (const char *)((uintptr_t)image + segment[i].p_offset - segment[i].p_vaddr);
        if (segment[i].p_type == PT_DYNAMIC)
            entry = (const void *)(image + segment[i].p_offset);
    }
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols = entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB)
            names = entry->d_un.d_ptr;
    }
    if (base == NULL || symbols == 0 || names == 0)
        return clock_gettime;
    const ElfW(Sym) *symbol = (const void *)((uintptr_t)base + symbols);
    const char *text = (const char *)((uintptr_t)base + names);
    /* Symbols end where their names begin, as linkers lay them out. */
    for (; (const char *)(symbol + 1) <= text; symbol++) {
        const void *address = base + symbol->st_value;
        clock_read *found;

        if (symbol->st_shndx == SHN_UNDEF || strcmp(text + symbol->st_name, NAME) != 0)
            continue;
        memcpy(&found, &address, sizeof(found));
        return found;
    }
    return clock_gettime;
}
