package core_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// TestDeleteNamespace checks that a namespace is marked, stays while it has
// finalizers of either kind, and is deleted when it has none.
func TestDeleteNamespace(t *testing.T) {
	namespaces := core.Namespaces()
	deletion := func(n *corev1.Namespace) resource.DeletionAction {
		return resource.BeforeDelete(namespaces, n, &metav1.DeleteOptions{}, noon).Action
	}
	n := &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}}
	d := resource.BeforeDelete(namespaces, n, &metav1.DeleteOptions{}, noon)
	if d.Action != resource.MarkObject || d.Object.(*corev1.Namespace).Status.Phase != corev1.NamespaceTerminating || n.DeletionTimestamp != nil {
		t.Fatalf("%+v of %+v", d, n)
	}
	marked := d.Object.(*corev1.Namespace)
	if action := deletion(marked); action != resource.LeaveAsIs {
		t.Errorf("a second deletion: %v", action)
	}
	finalized := marked.DeepCopy()
	finalized.Spec.Finalizers = nil
	if action := deletion(finalized); action != resource.DeleteNow || !resource.DeletesDuringUpdate(namespaces, finalized, marked) {
		t.Errorf("without finalizers: %v", action)
	}
	finalized.Finalizers = []string{"example.com/mine"}
	if action := deletion(finalized); action != resource.LeaveAsIs || resource.DeletesDuringUpdate(namespaces, finalized, marked) {
		t.Errorf("with a finalizer of its metadata: %v", action)
	}
}
