// Package history checks the consistency of API servers. Clients write, read and
// watch through one or two API servers with one etcd, while etcd and the servers
// are killed at random. Afterwards the answers are compared with the history of
// etcd:
//
//	each acknowledged write is stored, at the revision in its answer;
//	each list is the state at its resourceVersion;
//	each watch delivered all events in order, until it ended with 410 Gone;
//	writes, gets and consistent lists are linearizable (porcupine).
//
// The API servers come from apiservertest: they have only the request path, the watch cache and the
// client of etcd. A control plane of package cluster would write objects of its own, which etcd's
// history would have to explain. Kills, which come after 50 to 300 ms, would mostly meet servers that
// still create their default objects. The test TestKillProcessesAtRandom in test/attack kills whole
// control planes.
//
//	go test ./test/history -history.seed=7 -history.operations=100000
//	make soak SOAK=1h         repeats it with random seeds
package history
