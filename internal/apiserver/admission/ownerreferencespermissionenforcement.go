package admission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ownerReferencesPermissionEnforcement restricts changes of owner references to
// users who may delete the object, and blockOwnerDeletion to users who may
// update the finalizers of the owner.
type ownerReferencesPermissionEnforcement struct {
	onWrite
	authorizer authorizer.UnconditionalAuthorizer
}

func newOwnerReferencesPermissionEnforcement(c *Config) admission.Interface {
	return ownerReferencesPermissionEnforcement{authorizer: c.Authorizer}
}

func (p ownerReferencesPermissionEnforcement) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	obj, ok := a.GetObject().(metav1.Object)
	if !ok || is(a, "", "pods", "status") { // which does not change them
		return nil
	}
	var before []metav1.OwnerReference
	if old, ok := a.GetOldObject().(metav1.Object); ok {
		before = old.GetOwnerReferences()
	}
	after := obj.GetOwnerReferences()
	if slices.EqualFunc(before, after, func(x, y metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(x, y) }) {
		return nil
	}
	if a.GetOperation() != admission.Create {
		decision, reason, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: a.GetUserInfo(), Verb: "delete", Namespace: a.GetNamespace(), Name: a.GetName(), ResourceRequest: true,
			APIGroup: a.GetResource().Group, APIVersion: a.GetResource().Version, Resource: a.GetResource().Resource, Subresource: a.GetSubresource(),
		})
		if decision != authorizer.DecisionAllow {
			return refused(a, "cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err)
		}
	}
	return p.checkBlocking(ctx, a, o, newlyBlocking(before, after))
}

// checkBlocking refuses references that block the deletion of owners whose
// finalizers the user may not update.
func (p ownerReferencesPermissionEnforcement) checkBlocking(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, refs []metav1.OwnerReference) error {
	if len(refs) == 0 {
		return nil
	}
	wanted := authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "update", APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers", Name: "*", ResourceRequest: true,
	}
	if decision, _, _ := p.authorizer.Authorize(ctx, wanted); decision == authorizer.DecisionAllow {
		return nil // of every owner, also of kinds that are not known
	}
	for _, ref := range refs {
		plural, namespaced, err := ownerResource(ref, o)
		if err != nil {
			return refused(a, "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %v Kind %v: %w", ref.APIVersion, ref.Kind, err)
		}
		wanted.APIGroup, wanted.APIVersion, wanted.Resource = plural.Group, plural.Version, plural.Resource
		wanted.Name, wanted.Namespace = ref.Name, ""
		if namespaced {
			wanted.Namespace = a.GetNamespace()
		}
		decision, reason, err := p.authorizer.Authorize(ctx, wanted)
		if decision != authorizer.DecisionAllow {
			return refused(a, "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err)
		}
	}
	return nil
}

// ownerResource returns the resource of an owner.
func ownerResource(ref metav1.OwnerReference, o admission.ObjectInterfaces) (r schema.GroupVersionResource, namespaced bool, err error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return r, false, err
	}
	if known, ok := o.(resolver); ok {
		if plural, namespaced, served := known.ResourceOf(gv.WithKind(ref.Kind)); served {
			return gv.WithResource(plural), namespaced, nil
		}
	}
	return r, false, fmt.Errorf("no matches for kind %q in version %q", ref.Kind, ref.APIVersion)
}

// newlyBlocking returns the references that block the deletion of their owners
// and did not before.
func newlyBlocking(before, after []metav1.OwnerReference) []metav1.OwnerReference {
	blocks := func(ref metav1.OwnerReference) bool { return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion }
	var added []metav1.OwnerReference
	for _, ref := range after {
		same := func(old metav1.OwnerReference) bool { return old.UID == ref.UID && blocks(old) }
		if blocks(ref) && !slices.ContainsFunc(before, same) {
			added = append(added, ref)
		}
	}
	return added
}
