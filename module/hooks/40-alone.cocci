// SPDX-License-Identifier: GPL-2.0-only
// Notes that a batch is handed over early for a packet that has to go alone.
// Expect: vnt_tx_alone 1
@@
identifier net, nvq, sock, msg;
@@
+	vnt_tx_alone(vnt, nvq->done_idx);
 	vhost_tx_batch(net, nvq, sock, &msg);
 	msg.msg_control = NULL;
