// SPDX-License-Identifier: GPL-2.0-only
// The kernel's own busy poll steps aside for the one of vnt_hooks.h, which has
// its name and its arguments. Nothing calls it any more, so it is left out of
// the module.
// Expect: vnt_stock_busy_poll 1
@@
identifier net, rvq, tvq, intr, rx;
@@
-vhost_net_busy_poll
+vnt_stock_busy_poll
 (struct vhost_net *net, struct vhost_virtqueue *rvq, struct vhost_virtqueue *tvq, bool *intr, bool rx)
 {
 	<+...
 	cpu_relax();
 	...+>
 }
