// SPDX-License-Identifier: GPL-2.0-only
// The same where packets are sent without being copied.
// Expect: vnt_tx_may_wait 1
@@
identifier net, sock, nvq, vq, index;
expression length;
type T1, T2;
@@
 handle_tx_zerocopy(struct vhost_net *net, struct socket *sock)
 {
 	T1 nvq = &net->vqs[index];
 	T2 vq = &nvq->vq;
+	struct vnt_state *vnt = vnt_state_find(&net->dev);
 	<+...
-	tx_can_batch(vq, length)
+	vnt_tx_may_wait(vnt, tx_can_batch(vq, length))
 	...+>
 }
