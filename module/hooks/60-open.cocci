// SPDX-License-Identifier: GPL-2.0-only
// A device has state from the beginning. Without memory for it, it gets it
// later or goes without.
// Expect: vnt_state_make 1
@@
expression dev;
@@
 vhost_net_open(...)
 {
 	<+...
 	vhost_dev_init(dev, ...);
+	vnt_state_make(dev);
 	...+>
 }
