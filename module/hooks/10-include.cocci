// SPDX-License-Identifier: GPL-2.0-only
// Makes our declarations known to net.c.
// Expect: vnt_hooks.h 1
@@
@@
 #include "vhost.h"
+#include "vnt_hooks.h"
