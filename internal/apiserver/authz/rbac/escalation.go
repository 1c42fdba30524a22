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

// everything returns all permissions, which a cluster role that aggregates
// others may come to have.
func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
}

// CheckEscalation refuses writes of roles and bindings that grant permissions
// that the user does not have. old is nil on create. Users with the verbs
// escalate (on the role) or bind (on the bound role) and members of
// system:masters may grant all. Updates that do not change the rules are
// checked as well, since labels alone can add the rules of a role to an
// aggregating one. Only updates of the garbage collector's fields are not.
// Objects must be of the API's hub version. Errors are API statuses.
func (z *Authorizer) CheckEscalation(ctx context.Context, all authorizer.UnconditionalAuthorizer, u user.Info, obj, old runtime.Object) error {
	if u == nil || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	if old != nil && IsOnlyMutatingGCFields(obj, old) {
		return nil
	}
	c := check{Authorizer: z, all: all, user: u}
	switch o := obj.(type) {
	case *rbacv1.Role:
		return c.role(ctx, "roles", o.Namespace, o.Name, o.Rules)
	case *rbacv1.ClusterRole:
		was, _ := old.(*rbacv1.ClusterRole)
		aggregates := o.AggregationRule != nil || (was != nil && was.AggregationRule != nil)
		if aggregates && !c.may(ctx, "escalate", "clusterroles", "", o.Name) && c.covered("", everything()) != nil {
			return forbidden("clusterroles", o.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
		}
		return c.role(ctx, "clusterroles", "", o.Name, o.Rules)
	case *rbacv1.RoleBinding:
		return c.binding(ctx, "rolebindings", o.Namespace, o.Name, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return c.binding(ctx, "clusterrolebindings", "", o.Name, o.RoleRef)
	}
	return apierrors.NewInternalError(fmt.Errorf("cannot check a %T for escalation", obj))
}

// IsOnlyMutatingGCFields reports whether an update changes only owner
// references and finalizers. The garbage collector must be able to write them
// without having the permissions that the object grants.
func IsOnlyMutatingGCFields(obj, old runtime.Object) bool {
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

// covered returns an error that lists the permissions that the user does not
// have.
func (c check) covered(namespace string, rules []rbacv1.PolicyRule) error {
	compared := newComparison(rules)
	resolution := c.held(c.user, namespace, compared.subtract)
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
