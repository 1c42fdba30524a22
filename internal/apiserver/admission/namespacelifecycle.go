package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// namespaceLifecycle refuses new objects in namespaces that do not exist or are
// terminating, and the deletion of the system's namespaces. Objects that outlived
// their namespace can be updated, so that their finalizers can be removed.
type namespaceLifecycle struct {
	always
	namespaces fresh[*corev1.Namespace]
}

func newNamespaceLifecycle(c *Config) admission.Interface {
	return namespaceLifecycle{namespaces: freshOf[*corev1.Namespace](c, objects.Namespaces)}
}

func (p namespaceLifecycle) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind() {
		if a.GetOperation() == admission.Delete {
			switch a.GetName() {
			case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
				return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errors.New("this namespace may not be deleted"))
			}
		}
		return nil
	}
	if a.GetNamespace() == "" || a.GetOperation() == admission.Delete || a.GetOperation() == admission.Update || accessReview(a) {
		return nil
	}
	ns, err := namespaceOf(ctx, a, p.namespaces)
	if err != nil {
		return err
	}
	if a.GetOperation() != admission.Create || ns.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	err = refused(a, "unable to create new content in namespace %s because it is being terminated", ns.Name)
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", ns.Name),
			Field:   "metadata.namespace",
		})
	}
	return err
}

// accessReview reports whether the write is an access review, which is allowed
// for namespaces that do not exist.
func accessReview(a admission.Attributes) bool {
	return is(a, "authorization.k8s.io", "localsubjectaccessreviews", "")
}

func namespaceOf(ctx context.Context, a admission.Attributes, namespaces fresh[*corev1.Namespace]) (*corev1.Namespace, error) {
	ns, ok := namespaces.find(ctx, "", a.GetNamespace())
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), a.GetNamespace())
	}
	return ns, nil
}
