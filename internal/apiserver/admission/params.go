package admission

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

// resolver knows the kinds that the server has.
type resolver interface {
	// ResourceOf returns the plural name and the scope of the resource of a kind.
	ResourceOf(kind schema.GroupVersionKind) (plural string, namespaced, ok bool)
}

// params are the parameters of a policy or a binding.
type params struct {
	kind   *admissionregistrationv1.ParamKind // of a policy
	ref    *admissionregistrationv1.ParamRef  // of a binding
	policy string
}

// paramsOf returns the parameters of a policy or binding and, for a binding,
// the storage path of its policies.
func paramsOf(o runtime.Object) (p params, policies string) {
	switch o := o.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return params{kind: o.Spec.ParamKind}, ""
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return params{kind: o.Spec.ParamKind}, ""
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return params{ref: o.Spec.ParamRef, policy: o.Spec.PolicyName}, objects.ValidatingPolicies
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return params{ref: o.Spec.ParamRef, policy: o.Spec.PolicyName}, objects.MutatingPolicies
	}
	return params{}, ""
}

// checkParams refuses policies and bindings with parameters that their writer
// may not read, since the decisions of a policy can reveal them. Members of
// system:masters may use all. Updates that do not change the parameters are
// allowed.
func (c *Chain) checkParams(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	u := a.GetUserInfo()
	if u == nil || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	p, policies := paramsOf(a.GetObject())
	if old, _ := paramsOf(a.GetOldObject()); reflect.DeepEqual(p, old) {
		return nil
	}
	var err error
	path := field.NewPath("spec", "paramRef")
	switch {
	case p.kind != nil:
		path, err = field.NewPath("spec", "paramKind"), c.mayReadKind(ctx, u, p.kind, o)
	case p.ref != nil:
		known := false
		if kind := c.config.Objects.Kind(policies); kind != nil {
			var policy resource.Object
			if policy, known = kind.Get("", p.policy); known {
				declared, _ := paramsOf(policy)
				p.kind = declared.kind
			}
		}
		err = c.mayReadParams(ctx, u, p, known, o)
	}
	if err == nil {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{field.Forbidden(path, err.Error())})
}

// mayReadKind returns an error unless the user may read all objects of a kind.
func (c *Chain) mayReadKind(ctx context.Context, u user.Info, kind *admissionregistrationv1.ParamKind, o admission.ObjectInterfaces) error {
	requested, _ := readOf(kind, o)
	requested.User, requested.Verb, requested.Name, requested.Namespace = u, "get", "*", "*"
	if c.allows(ctx, requested) {
		return nil
	}
	return fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, u, kind.Kind, kind.APIVersion)
}

// mayReadParams returns an error unless the user may read the parameters that a
// binding refers to. The policy, if it is known, says their kind.
func (c *Chain) mayReadParams(ctx context.Context, u user.Info, p params, known bool, o admission.ObjectInterfaces) error {
	requested, problem := anyRead(), ""
	switch {
	case !known:
		problem = "unable to get policy " + p.policy
	case p.kind != nil:
		requested, problem = readOf(p.kind, o)
	}
	requested.User, requested.Verb, requested.Name, requested.Namespace = u, "get", p.ref.Name, p.ref.Namespace
	if p.ref.Name == "" {
		requested.Verb = "list"
	}
	if c.allows(ctx, requested) {
		return nil
	}
	if problem != "" {
		return fmt.Errorf("%s to determine minimum required permissions and user %v does not have %q permission for all groups, versions and resources", problem, u, requested.Verb)
	}
	return fmt.Errorf("user %v does not have %q permission on the object referenced by paramRef", u, requested.Verb)
}

func (c *Chain) allows(ctx context.Context, requested authorizer.AttributesRecord) bool {
	decision, _, err := c.config.Authorizer.Authorize(ctx, requested)
	return err == nil && decision == authorizer.DecisionAllow
}

// anyRead returns the attributes of a request for objects of all resources.
func anyRead() authorizer.AttributesRecord {
	return authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "*", APIVersion: "*", Resource: "*"}
}

// readOf returns the attributes of a request for objects of a kind. If the kind
// is not known, they cover more, and problem says why.
func readOf(kind *admissionregistrationv1.ParamKind, o admission.ObjectInterfaces) (requested authorizer.AttributesRecord, problem string) {
	requested = anyRead()
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return requested, fmt.Sprintf("unable to parse paramKind %v", kind)
	}
	requested.APIGroup, requested.APIVersion = gv.Group, gv.Version
	if r, ok := o.(resolver); ok {
		if plural, _, served := r.ResourceOf(gv.WithKind(kind.Kind)); served {
			requested.Resource = plural
			return requested, ""
		}
	}
	return requested, fmt.Sprintf("unable to resolve paramKind %v", kind)
}
