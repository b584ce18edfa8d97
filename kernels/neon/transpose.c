#include "../vec/transpose.h"
