// SPDX-License-Identifier: GPL-2.0-only
// Notes that a run stops because it has handled its weight. The limit itself
// stays the kernel's.
// Expect: vnt_weighed 2
@@
identifier net, sock, vq, f = {handle_tx_copy, handle_tx_zerocopy};
expression packets, bytes;
@@
 f(struct vhost_net *net, struct socket *sock)
 {
 	<+...
-	vhost_exceeds_weight(vq, packets, bytes)
+	vnt_weighed(&net->dev, VNT_TX, vhost_exceeds_weight(vq, packets, bytes))
 	...+>
 }
