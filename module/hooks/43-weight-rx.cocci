// SPDX-License-Identifier: GPL-2.0-only
// The same for the receive ring.
// Expect: vnt_weighed 1
@@
identifier net, vq;
expression packets, bytes;
@@
 handle_rx(struct vhost_net *net)
 {
 	<+...
-	vhost_exceeds_weight(vq, packets, bytes)
+	vnt_weighed(&net->dev, VNT_RX, vhost_exceeds_weight(vq, packets, bytes))
 	...+>
 }
