/* The pages of this library's code that are mapped into the process. */
#ifndef FLEXNN_CODE_H
#define FLEXNN_CODE_H

/* Takes the pages of this library's code and constants out of the process: what opening and planning ran is not needed
 * by runs, and counts as the process's memory. They stay in the page cache; code that runs again maps its own pages
 * again, at about a microsecond for each 8 or 64 KiB. Breakpoints that a debugger has set in them are gone. */
void fx_code_forget(void);
/* Does that, too, and makes the library about 450 mappings of 8 KiB: what is touched then maps no more than its own.
 * Once is enough for a process; it takes 1 ms. */
void fx_code_cut(void);

#endif
