package nodeports

import (
	"fmt"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Explain implements framework.Explainer: it names the pods that have the ports.
func (*plugin) Explain(_ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	for _, wanted := range pod.Ports {
		if owner := ownerOf(wanted, n); owner != nil {
			out = append(out, framework.Obstacle{
				Text:     fmt.Sprintf("host port %d/%s belongs to pod %s", wanted.Port, wanted.Protocol, klog.KObj(owner.Pod)),
				Remedies: []string{fmt.Sprintf("choose a hostPort other than %d, or none", wanted.Port), fmt.Sprintf("move pod %s to another node", klog.KObj(owner.Pod))},
			})
		}
	}
	return out
}

// ownerOf returns the pod on the node that has a port, or nil.
func ownerOf(wanted podquery.HostPort, n *framework.NodeInfo) *framework.PodInfo {
	for _, other := range n.Pods {
		for _, taken := range other.Ports {
			if wanted.Conflicts(taken) {
				return other
			}
		}
	}
	return nil
}
