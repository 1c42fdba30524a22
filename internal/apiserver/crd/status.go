package crd

import (
	"context"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// fieldManager owns the fields that the API server writes into a definition's
// status.
const fieldManager = "kube-apiserver"

// withStatus returns a definition with the names and conditions that it should
// have given the others of its group; nil if it has them. The result shares
// everything but its status with crd.
func withStatus(crd *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition, now time.Time) *apiextensionsv1.CustomResourceDefinition {
	copied := *crd
	next := &copied
	next.Status = *crd.Status.DeepCopy()
	setCondition := func(c apiextensionsv1.CustomResourceDefinitionCondition) {
		if apihelpers.IsCRDConditionEquivalent(&c, apihelpers.FindCRDCondition(next, c.Type)) {
			return
		}
		if old := apihelpers.FindCRDCondition(next, c.Type); old == nil || old.Status != c.Status {
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		}
		apihelpers.SetCRDCondition(next, c)
	}
	judged := apihelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted) != nil
	if !judged || !equality.Semantic.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames) {
		names, accepted := acceptNames(crd, others)
		next.Status.AcceptedNames = names
		setCondition(accepted)
	}
	switch {
	case established(next):
	case apihelpers.IsCRDConditionTrue(next, apiextensionsv1.NamesAccepted):
		setCondition(apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
			Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
		})
	default:
		setCondition(apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
			Reason: "NotAccepted", Message: "not all names are accepted",
		})
	}
	for _, judge := range []struct {
		kind   apiextensionsv1.CustomResourceDefinitionConditionType
		decide func(*apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionCondition
	}{
		{apiextensionsv1.NonStructuralSchema, nonStructural},
		{apiextensionsv1.KubernetesAPIApprovalPolicyConformant, approval},
	} {
		if c := judge.decide(next); c != nil {
			setCondition(*c)
		} else if apihelpers.FindCRDCondition(next, judge.kind) != nil {
			apihelpers.RemoveCRDCondition(next, judge.kind)
		}
	}
	if equality.Semantic.DeepEqual(next.Status, crd.Status) {
		return nil
	}
	return next
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

// writeStatus writes the new status of a definition. It skips a definition that
// has changed since st was read, because the event of that change causes
// another sync.
func (s *Server) writeStatus(ctx context.Context, kind *watchcache.Kind, st *state) error {
	return s.update(ctx, kind, st.entry.Name, func(current resource.Object) (resource.Object, error) {
		if current.GetResourceVersion() != st.entry.Object.GetResourceVersion() {
			return nil, nil
		}
		next := *st.next // a copy, since the write sets its revision
		return &next, nil
	})
}

// update updates the status of a definition by next. It ignores a definition
// that does not exist.
func (s *Server) update(ctx context.Context, kind *watchcache.Kind, name string, next func(current resource.Object) (resource.Object, error)) error {
	err := s.writer().UpdateStatus(ctx, kind, "", name, fieldManager, next)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *Server) writer() registry.Writer {
	return registry.Writer{Managers: s.managers, Clock: s.Clock}
}
