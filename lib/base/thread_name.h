// Names the calling thread, so that top -H and a debugger tell weft's threads apart.
#pragma once

#include <sys/prctl.h>

namespace weft {

// At most 15 characters; the kernel cuts the rest off. Cannot fail.
inline void name_this_thread(const char* name) { (void)::prctl(PR_SET_NAME, name); }

}  // namespace weft
