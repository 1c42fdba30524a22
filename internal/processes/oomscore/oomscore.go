// Package oomscore says which processes of a cluster the kernel may end first
// when memory is short, by the adjustments of their OOM scores
// (proc_pid_oom_score_adj(5)):
//
//	-999          kubelet with proxy and DNS, containerd, supervisor
//	-998          control plane, shims and sandboxes of pods
//	-997          containers of Guaranteed and of critical pods
//	3 to 1000     other containers
//
// The setting applies to the whole process and to the children that it starts
// afterwards: only a program calls Set, no library. containerd sets the scores of
// its shims and runc those of containers, so that they inherit nothing.
package oomscore

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Adjustments of the processes of a cluster.
const (
	// Node is the adjustment of a node's process and of containerd: upstream's for
	// the kubelet, kube-proxy and containerd. The supervisor has it too, because
	// all other processes end with it.
	Node = -999
	// ControlPlane is the adjustment of a control plane. Upstream's static pods
	// have -997 as Guaranteed pods have, among which the kernel ends the largest.
	// The loss of a control plane with its etcd concerns all nodes, so that it is
	// ended after all containers and before the node that would start it again.
	ControlPlane = -998
)

// writeFile replaces os.WriteFile in tests.
type writeFile func(name string, data []byte, mode os.FileMode) error

// Set sets the adjustment of this process, -1000 to 1000. A process without the
// capability CAP_SYS_RESOURCE cannot set it below what a process with it has set
// last: the error then matches os.ErrPermission.
func Set(adjustment int) error { return set(adjustment, os.WriteFile) }

func set(adjustment int, write writeFile) error {
	err := write("/proc/self/oom_score_adj", []byte(strconv.Itoa(adjustment)), 0o644)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("the machine does not permit this process the OOM score adjustment %d (it needs CAP_SYS_RESOURCE): %w", adjustment, err)
	}
	if err != nil {
		return fmt.Errorf("set the OOM score adjustment to %d: %w", adjustment, err)
	}
	return nil
}

// Of returns the adjustment of a process.
func Of(pid int) (int, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}
