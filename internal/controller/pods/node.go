package pods

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// ByNode is the name of the pod informer's index by spec.nodeName. Pods
// without a node are not in it.
const ByNode = "spec.nodeName"

// NodeKeys is the index function of ByNode.
func NodeKeys(o any) ([]string, error) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by its node", o)
	}
	if p.Spec.NodeName == "" {
		return nil, nil
	}
	return []string{p.Spec.NodeName}, nil
}

// OnNode lists the pods bound to a node from an informer with the index
// ByNode.
func OnNode(informer cache.SharedIndexInformer, node string) ([]*v1.Pod, error) {
	objects, err := informer.GetIndexer().ByIndex(ByNode, node)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, len(objects))
	for i, o := range objects {
		pods[i] = o.(*v1.Pod)
	}
	return pods, nil
}
