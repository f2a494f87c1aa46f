// SPDX-License-Identifier: GPL-2.0-only
// The state goes with the device, once its worker can run no more.
// Expect: vnt_state_drop 1
@@
identifier n;
@@
 vhost_net_release(...)
 {
 	<+...
+	vnt_state_drop(&n->dev);
 	kfree(n->dev.vqs);
 	...+>
 }
