package pods

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/podquery"
)

// ByNode is the name of the pod informer's index by spec.nodeName. The index
// does not contain unscheduled pods.
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

// OnNode returns the pods bound to a node. The informer must have the index
// ByNode.
func OnNode(informer cache.SharedIndexInformer, node string) ([]*v1.Pod, error) {
	return indexed(informer, ByNode, node)
}

// ByClaim is the name of the pod informer's index by PersistentVolumeClaim,
// including the claims of ephemeral volumes.
const ByClaim = "persistentVolumeClaim"

// ClaimKeys is the index function of ByClaim.
func ClaimKeys(o any) ([]string, error) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by its claims", o)
	}
	var keys []string
	for name := range podquery.ClaimNames(p) {
		keys = append(keys, cache.NewObjectName(p.Namespace, name).String())
	}
	return keys, nil
}

// OfClaim returns the pods that name a claim. The informer must have the index
// ByClaim.
func OfClaim(informer cache.SharedIndexInformer, claim *v1.PersistentVolumeClaim) ([]*v1.Pod, error) {
	return indexed(informer, ByClaim, cache.MetaObjectToName(claim).String())
}

func indexed(informer cache.SharedIndexInformer, index, key string) ([]*v1.Pod, error) {
	objects, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, len(objects))
	for i, o := range objects {
		pods[i] = o.(*v1.Pod)
	}
	return pods, nil
}
