/* The pages of this library's code that are mapped into the process. */
#ifndef FLEXNN_CODE_H
#define FLEXNN_CODE_H

/* Takes the pages of this library's code and constants out of the process: what importing, opening and planning ran is
 * not needed by runs, and counts as the process's memory. They stay in the page cache; code that runs again maps its own
 * pages again, at about a microsecond for 8 KiB, as the first call makes a mapping of each 8 KiB (1 ms, 450 mappings).
 * Breakpoints that a debugger has set in them are gone. */
void fx_code_forget(void);

#endif
