package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/supervise"
)

// concurrentWrites is how many objects are written concurrently. A durable
// store handles many concurrent writes in the time of one.
const concurrentWrites = 64

// Writer stores objects. It sets the fields that every stored object has: UID,
// creation time, defaults. Conflicts with another server are not errors, since
// all servers write the same: creating an object that exists, or updating or
// deleting one that has changed.
type Writer interface {
	Create(ctx context.Context, storagePath string, obj resource.Object) error
	Update(ctx context.Context, storagePath string, obj, old resource.Object) error
	Delete(ctx context.Context, storagePath string, old resource.Object) error
}

// Reconcile creates missing default objects and completes existing ones. It
// adds missing rules to default roles and missing subjects to default bindings,
// unless their annotation rbac.authorization.kubernetes.io/autoupdate is
// "false". It removes nothing that users have added. source must be synced.
func Reconcile(ctx context.Context, source objects.Source, w Writer, o Options) error {
	all, err := wantedObjects(o)
	if err != nil {
		return err
	}
	return ensure(ctx, source, w, all)
}

// ensure creates or updates all objects.
func ensure(ctx context.Context, source objects.Source, w Writer, all []wanted) error {
	g, ctx := supervise.WithContext(ctx)
	g.SetLimit(concurrentWrites)
	for _, want := range all {
		kind := source.Kind(want.storagePath)
		if kind == nil {
			continue
		}
		name := want.obj.GetName()
		have, ok := kind.Get(want.obj.GetNamespace(), name)
		if !ok {
			g.Go(func() error { return wrap(w.Create(ctx, want.storagePath, want.obj), "creating", want) })
			continue
		}
		next, recreate := reconcile(have, want.obj)
		switch {
		case recreate:
			g.Go(func() error {
				if err := w.Delete(ctx, want.storagePath, have); err != nil {
					return wrap(err, "replacing", want)
				}
				return wrap(w.Create(ctx, want.storagePath, want.obj), "replacing", want)
			})
		case next != nil:
			g.Go(func() error { return wrap(w.Update(ctx, want.storagePath, next, have), "updating", want) })
		}
	}
	return g.Wait()
}

func wrap(err error, doing string, w wanted) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s the default object %s %s: %w", doing, w.storagePath, w.obj.GetName(), err)
}

// reconcile returns the new state of an object, or nil if it need not change.
// recreate means that it must be deleted and created: the role of a binding
// cannot change.
func reconcile(have, want resource.Object) (next resource.Object, recreate bool) {
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return nil, false
	}
	switch have := have.(type) {
	case *rbacv1.ClusterRole:
		n, want := have.DeepCopy(), want.(*rbacv1.ClusterRole)
		changed := mergeMeta(n, want)
		if want.AggregationRule != nil {
			changed = mergeAggregation(n, want.AggregationRule) || changed
		} else if ok, missing := validation.Covers(have.Rules, want.Rules); !ok {
			n.Rules, changed = append(n.Rules, missing...), true
		}
		return ifChanged(n, changed), false
	case *rbacv1.Role:
		n, want := have.DeepCopy(), want.(*rbacv1.Role)
		changed := mergeMeta(n, want)
		if ok, missing := validation.Covers(have.Rules, want.Rules); !ok {
			n.Rules, changed = append(n.Rules, missing...), true
		}
		return ifChanged(n, changed), false
	case *rbacv1.ClusterRoleBinding:
		n, want := have.DeepCopy(), want.(*rbacv1.ClusterRoleBinding)
		if have.RoleRef != want.RoleRef {
			return nil, true
		}
		changed := mergeMeta(n, want)
		return ifChanged(n, mergeSubjects(&n.Subjects, want.Subjects) || changed), false
	case *rbacv1.RoleBinding:
		n, want := have.DeepCopy(), want.(*rbacv1.RoleBinding)
		if have.RoleRef != want.RoleRef {
			return nil, true
		}
		changed := mergeMeta(n, want)
		return ifChanged(n, mergeSubjects(&n.Subjects, want.Subjects) || changed), false
	case *flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration:
		return reconcileFlowControl(have, want), false
	case *apiregistrationv1.APIService:
		n := have.DeepCopy()
		n.Spec = want.(*apiregistrationv1.APIService).Spec
		return ifChanged(n, have.Labels[automanaged] != "" && !equality.Semantic.DeepEqual(n.Spec, have.Spec)), false
	case *corev1.ConfigMap:
		want := want.(*corev1.ConfigMap)
		if have.Name != "extension-apiserver-authentication" {
			return nil, false
		}
		n := have.DeepCopy()
		if n.Data == nil {
			n.Data = map[string]string{}
		}
		maps.Copy(n.Data, want.Data)
		return ifChanged(n, !maps.Equal(n.Data, have.Data)), false
	}
	return nil, false
}

func ifChanged(n resource.Object, changed bool) resource.Object {
	if changed {
		return n
	}
	return nil
}

// mergeMeta adds the wanted labels and annotations that are missing.
func mergeMeta(n, want resource.Object) (changed bool) {
	labels, addedLabels := merge(n.GetLabels(), want.GetLabels())
	annotations, addedAnnotations := merge(n.GetAnnotations(), want.GetAnnotations())
	n.SetLabels(labels)
	n.SetAnnotations(annotations)
	return addedLabels || addedAnnotations
}

func merge(have, want map[string]string) (merged map[string]string, added bool) {
	merged = have
	for k, v := range want {
		if have[k] != v {
			if !added {
				merged, added = maps.Clone(have), true
				if merged == nil {
					merged = map[string]string{}
				}
			}
			merged[k] = v
		}
	}
	return merged, added
}

func mergeAggregation(n *rbacv1.ClusterRole, want *rbacv1.AggregationRule) (changed bool) {
	if n.AggregationRule == nil {
		n.AggregationRule = &rbacv1.AggregationRule{}
	}
	for _, s := range want.ClusterRoleSelectors {
		same := func(have metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(have, s) }
		if !slices.ContainsFunc(n.AggregationRule.ClusterRoleSelectors, same) {
			n.AggregationRule.ClusterRoleSelectors = append(n.AggregationRule.ClusterRoleSelectors, s)
			changed = true
		}
	}
	return changed
}

func mergeSubjects(have *[]rbacv1.Subject, want []rbacv1.Subject) (changed bool) {
	for _, s := range want {
		if !slices.Contains(*have, s) {
			*have, changed = append(*have, s), true
		}
	}
	return changed
}
