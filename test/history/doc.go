// Package history checks what API servers promise about time. Clients write,
// read and watch over one or two API servers on one etcd, while etcd and the
// servers are killed at random; afterwards everything they were told is
// compared with etcd's own history:
//
//	every acknowledged write is there, at the revision it was answered with;
//	every list is exactly the state at its resourceVersion;
//	every watch saw every event, in order, until it was told to begin anew;
//	writes, gets and consistent lists are linearizable (porcupine).
//
//	go test ./test/history -history.seed=7 -history.operations=100000
//	make soak SOAK=1h         one random seed after the other
package history
