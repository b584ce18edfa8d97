#include "../vec/online_softmax.h"
