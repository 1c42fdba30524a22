package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// everything is what a cluster role that aggregates others may come to hold.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// CheckEscalation refuses writes of roles and bindings by which the user
// would grant what the user does not hold (old is nil on create). The verbs
// escalate (on roles) and bind (on the role bound) allow it all the same, as
// does the group system:masters. Updates that change no rule count too, since
// labels alone make the rules of a role flow into those that aggregate it;
// only what the garbage collector writes is free. Objects must be those of
// the API's hub version. Errors are API statuses.
func (z *Authorizer) CheckEscalation(ctx context.Context, all authorizer.UnconditionalAuthorizer, u user.Info, obj, old runtime.Object) error {
	if u == nil || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	if old != nil && OnlyForCollector(obj, old) {
		return nil
	}
	c := check{Authorizer: z, all: all, user: u}
	switch o := obj.(type) {
	case *rbacv1.Role:
		return c.role(ctx, "roles", o.Namespace, o.Name, o.Rules)
	case *rbacv1.ClusterRole:
		was, _ := old.(*rbacv1.ClusterRole)
		aggregates := o.AggregationRule != nil || (was != nil && was.AggregationRule != nil)
		if aggregates && !c.may(ctx, "escalate", "clusterroles", "", o.Name) && c.covered("", everything) != nil {
			return forbidden("clusterroles", o.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
		}
		return c.role(ctx, "clusterroles", "", o.Name, o.Rules)
	case *rbacv1.RoleBinding:
		return c.binding(ctx, "rolebindings", o.Namespace, o.Name, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return c.binding(ctx, "clusterrolebindings", "", o.Name, o.RoleRef)
	}
	return apierrors.NewInternalError(fmt.Errorf("whether a %T grants more than its writer holds is not known", obj))
}

// OnlyForCollector says that an update changes nothing but owner references
// and finalizers, which the garbage collector must be able to write without
// holding what the object grants.
func OnlyForCollector(obj, old runtime.Object) bool {
	was, ok := old.(metav1.Object)
	copied := obj.DeepCopyObject()
	now, ok2 := copied.(metav1.Object)
	if !ok || !ok2 {
		return false
	}
	now.SetOwnerReferences(was.GetOwnerReferences())
	now.SetFinalizers(was.GetFinalizers())
	now.SetManagedFields(was.GetManagedFields())
	now.SetSelfLink(was.GetSelfLink())
	return equality.Semantic.DeepEqual(copied, old)
}

type check struct {
	*Authorizer
	all  authorizer.UnconditionalAuthorizer
	user user.Info
}

func (c check) role(ctx context.Context, resource, namespace, name string, rules []rbacv1.PolicyRule) error {
	err := c.covered(namespace, rules)
	if err == nil || c.may(ctx, "escalate", resource, namespace, name) {
		return nil
	}
	return forbidden(resource, name, err)
}

func (c check) binding(ctx context.Context, resource, namespace, name string, ref rbacv1.RoleRef) error {
	roles := "roles"
	if ref.Kind == "ClusterRole" {
		roles = "clusterroles"
	}
	if c.may(ctx, "bind", roles, namespace, ref.Name) {
		return nil
	}
	_, rules, err := c.readers.resolve(ref, namespace)
	if err != nil {
		return err
	}
	if err := c.covered(namespace, rules); err != nil {
		return forbidden(resource, name, err)
	}
	return nil
}

// covered returns an error that lists the rules that the user does not hold.
func (c check) covered(namespace string, rules []rbacv1.PolicyRule) error {
	compared := newComparison(rules)
	resolution := c.held(c.user, namespace, compared.hold)
	missing, err := compared.missing()
	if err != nil || len(missing.lines) == 0 {
		return err
	}
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		c.user.GetName(), c.user.GetGroups(), missing.text())
	if resolution != nil {
		message += fmt.Sprintf("; resolution errors: %v", []error{resolution})
	}
	return errors.New(message)
}

func (c check) may(ctx context.Context, verb, resource, namespace, name string) bool {
	decision, _, _ := c.all.Authorize(ctx, authorizer.AttributesRecord{
		User: c.user, Verb: verb, Namespace: namespace, APIGroup: rbacv1.GroupName, APIVersion: "*",
		Resource: resource, Name: name, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow
}

func forbidden(resource, name string, err error) error {
	return apierrors.NewForbidden(rbacv1.Resource(resource), name, err)
}
