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

// A resolver is the server that admits an object, who knows the kinds that it
// serves.
type resolver interface {
	// ResourceOf is the plural name of the resource of a kind.
	ResourceOf(kind schema.GroupVersionKind) (plural string, ok bool)
}

// params are what a policy or its binding says of parameters.
type params struct {
	kind   *admissionregistrationv1.ParamKind // of a policy
	ref    *admissionregistrationv1.ParamRef  // of a binding
	policy string
}

// paramsOf returns what o says of parameters, and where the policies of a
// binding are stored.
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

// checkParams refuses policies and bindings whose parameters their writer may
// not read: a policy's answers can show what is in them. The group
// system:masters may write all, and updates that leave the parameters as they
// were pass.
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
				said, _ := paramsOf(policy)
				p.kind = said.kind
			}
		}
		err = c.mayReadParams(ctx, u, p, known, o)
	}
	if err == nil {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{field.Forbidden(path, err.Error())})
}

// mayReadKind says what keeps a user from reading all objects of a kind.
func (c *Chain) mayReadKind(ctx context.Context, u user.Info, kind *admissionregistrationv1.ParamKind, o admission.ObjectInterfaces) error {
	asked, _ := readOf(kind, o)
	asked.User, asked.Verb, asked.Name, asked.Namespace = u, "get", "*", "*"
	if c.allows(ctx, asked) {
		return nil
	}
	return fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, u, kind.Kind, kind.APIVersion)
}

// mayReadParams says what keeps a user from reading what a binding refers to,
// which is of a kind that the policy says, if it is known.
func (c *Chain) mayReadParams(ctx context.Context, u user.Info, p params, known bool, o admission.ObjectInterfaces) error {
	asked, problem := anyRead(), ""
	switch {
	case !known:
		problem = "unable to get policy " + p.policy
	case p.kind != nil:
		asked, problem = readOf(p.kind, o)
	}
	asked.User, asked.Verb, asked.Name, asked.Namespace = u, "get", p.ref.Name, p.ref.Namespace
	if p.ref.Name == "" {
		asked.Verb = "list"
	}
	if c.allows(ctx, asked) {
		return nil
	}
	if problem != "" {
		return fmt.Errorf("%s to determine minimum required permissions and user %v does not have %q permission for all groups, versions and resources", problem, u, asked.Verb)
	}
	return fmt.Errorf("user %v does not have %q permission on the object referenced by paramRef", u, asked.Verb)
}

func (c *Chain) allows(ctx context.Context, asked authorizer.AttributesRecord) bool {
	decision, _, err := c.config.Authorizer.Authorize(ctx, asked)
	return err == nil && decision == authorizer.DecisionAllow
}

// anyRead asks for objects of all resources.
func anyRead() authorizer.AttributesRecord {
	return authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "*", APIVersion: "*", Resource: "*"}
}

// readOf asks for objects of a kind, or else for more; then problem says why.
func readOf(kind *admissionregistrationv1.ParamKind, o admission.ObjectInterfaces) (asked authorizer.AttributesRecord, problem string) {
	asked = anyRead()
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return asked, fmt.Sprintf("unable to parse paramKind %v", kind)
	}
	asked.APIGroup, asked.APIVersion = gv.Group, gv.Version
	if r, ok := o.(resolver); ok {
		if plural, served := r.ResourceOf(gv.WithKind(kind.Kind)); served {
			asked.Resource = plural
			return asked, ""
		}
	}
	return asked, fmt.Sprintf("unable to resolve paramKind %v", kind)
}
