package nodejoin

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/podquery"
)

// evictAgain is the time between two attempts to evict the pods that are left.
const evictAgain = 2 * time.Second

// Drain makes a node unschedulable and evicts its pods, and returns when they are
// gone. Pods of DaemonSets, static pods and pods that have ended stay. A pod whose
// disruption budget does not allow its eviction is tried again until ctx ends; the
// error then names the pods that are left. A client with the identity of the node
// has all rights for that. A node that does not exist has no pods.
func Drain(ctx context.Context, client kubernetes.Interface, node string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make node %s unschedulable: %w", node, err)
	}
	var left []string
	var last error
	err = wait.PollUntilContextCancel(ctx, evictAgain, true, func(ctx context.Context) (bool, error) {
		left, last = evict(ctx, client, node)
		return len(left) == 0 && last == nil, nil
	})
	if err == nil {
		return nil
	}
	if last != nil {
		err = last
	}
	return fmt.Errorf("evict the pods of node %s, of which are left %v: %w", node, left, err)
}

// evict asks for the eviction of the pods that are to leave a node, and returns
// their names and the first error.
func evict(ctx context.Context, client kubernetes.Interface, node string) (left []string, failed error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !leaves(pod) {
			continue
		}
		left = append(left, pod.Namespace+"/"+pod.Name)
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
		if err != nil && !apierrors.IsNotFound(err) && failed == nil {
			failed = fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	slices.Sort(left)
	return left, failed
}

// leaves reports whether a pod has to leave a node that is drained.
func leaves(pod *v1.Pod) bool {
	if podquery.IsFinished(pod) || podquery.IsMirror(pod) {
		return false
	}
	return !slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" && o.Controller != nil && *o.Controller
	})
}
