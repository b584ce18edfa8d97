#include "../vec/gemv.h"
