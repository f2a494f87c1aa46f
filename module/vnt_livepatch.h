/* SPDX-License-Identifier: GPL-2.0-only */
/* Which functions of the running vhost_net are replaced. */
#ifndef VNT_LIVEPATCH_H
#define VNT_LIVEPATCH_H

#include <linux/livepatch.h>

extern struct klp_func vnt_funcs[];

#endif
