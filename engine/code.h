/* The pages of this library's code that are mapped into the process. */
#ifndef FLEXNN_ENGINE_CODE_H
#define FLEXNN_ENGINE_CODE_H

/* Takes the pages of this library's code out of the process: what opening and planning ran is not needed by runs, and
 * counts as the process's memory. They stay in the page cache; code that runs again maps its own pages again, at about
 * a microsecond for 64 KiB. Breakpoints that a debugger has set in them are gone. */
void fx_code_forget(void);

#endif
