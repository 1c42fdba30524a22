// Package node is the Node authorizer. It limits kubelets to the objects of
// their own node, its pods, and the objects that these refer to, and the ingress
// controller, which runs on a node, to the Secrets of TLS.
package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/authz/rbac"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/pki"
)

// Identify returns the name of the node that a user is. isNode is true for
// members of system:nodes with the user name of a node.
func Identify(u user.Info) (name string, isNode bool) {
	if u == nil || !strings.HasPrefix(u.GetName(), pki.NodePrefix) || !slices.Contains(u.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return strings.TrimPrefix(u.GetName(), pki.NodePrefix), true
}

// New returns the Node authorizer. rules are further rules of all nodes, those
// of the cluster role system:node.
func New(source objects.Source, rules []rbacv1.PolicyRule) authorizer.Authorizer {
	z := &nodes{rules: rules, relations: relations{
		pods:        objects.Of[*corev1.Pod](source, objects.Pods),
		claims:      objects.Of[*corev1.PersistentVolumeClaim](source, objects.Claims),
		volumes:     objects.Of[*corev1.PersistentVolume](source, objects.PersistentVolumes),
		attachments: objects.Of[*storagev1.VolumeAttachment](source, objects.VolumeAttachments),
		devices:     objects.Of[*resourcev1.ResourceSlice](source, objects.ResourceSlices),
		requests:    objects.Of[*certificatesv1.PodCertificateRequest](source, objects.PodCertificates),
	}}
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if readsTLSSecrets(a) {
			return authorizer.DecisionAllow, "", nil
		}
		name, isNode := Identify(a.GetUser())
		if !isNode {
			return authorizer.DecisionNoOpinion, "", nil
		}
		if name == "" {
			return authorizer.DecisionNoOpinion, fmt.Sprintf("unknown node for user %q", a.GetUser().GetName()), nil
		}
		if reason := z.refuse(name, a); reason != nil {
			return authorizer.DecisionNoOpinion, *reason, nil
		}
		return authorizer.DecisionAllow, "", nil
	})
}

type nodes struct {
	relations relations
	rules     []rbacv1.PolicyRule
}

// denied returns a reason to refuse.
func denied(format string, args ...any) *string {
	s := fmt.Sprintf(format, args...)
	return &s
}

// refuse returns the reason to refuse a request of a node, or nil to allow it.
func (z *nodes) refuse(node string, a authorizer.Attributes) *string {
	if a.IsResourceRequest() {
		switch a.GetAPIGroup() + "/" + a.GetResource() {
		case "/secrets":
			return z.read(node, secret, a)
		case "/configmaps":
			return z.read(node, configMap, a)
		case "/persistentvolumeclaims":
			if a.GetSubresource() == "status" {
				return z.claimStatus(node, a)
			}
			return z.get(node, claim, a)
		case "/persistentvolumes":
			return z.get(node, volume, a)
		case "resource.k8s.io/resourceclaims":
			return z.get(node, resourceClaim, a)
		case "storage.k8s.io/volumeattachments":
			return onlyGet(a, func() *string { return unrelated(node, z.relations.attachment(node, a.GetName())) })
		case "/serviceaccounts":
			return z.account(node, a)
		case "/nodes":
			return ownNode(node, a, z.rules)
		case "/pods":
			return z.pod(node, a)
		case "coordination.k8s.io/leases":
			return lease(node, a)
		case "storage.k8s.io/csinodes":
			return csiNode(node, a)
		case "resource.k8s.io/resourceslices":
			return z.slice(node, a)
		case "certificates.k8s.io/podcertificaterequests":
			return z.podCertificate(node, a)
		case "certificates.k8s.io/clustertrustbundles":
			return trustBundle(a)
		}
	}
	if rbac.Allows(z.rules, a) {
		return nil
	}
	return denied("")
}

func unrelated(node string, related bool) *string {
	if related {
		return nil
	}
	return denied("no relationship found between node '%s' and this object", node)
}

func (z *nodes) related(node string, k kind, a authorizer.Attributes) *string {
	if a.GetName() == "" {
		return denied("No Object name found")
	}
	return unrelated(node, z.relations.needs(node, k, a.GetNamespace(), a.GetName()))
}

// read allows get, list and watch of single objects by name.
func (z *nodes) read(node string, k kind, a authorizer.Attributes) *string {
	switch a.GetVerb() {
	case "get", "list", "watch":
	default:
		return denied("can only read resources of this type")
	}
	if a.GetSubresource() != "" {
		return denied("cannot read subresource")
	}
	if a.GetNamespace() == "" {
		return denied("can only read namespaced object of this type")
	}
	return z.related(node, k, a)
}

func onlyGet(a authorizer.Attributes, then func() *string) *string {
	if a.GetVerb() != "get" {
		return denied("can only get individual resources of this type")
	}
	if a.GetSubresource() != "" {
		return denied("cannot get subresource")
	}
	return then()
}

func (z *nodes) get(node string, k kind, a authorizer.Attributes) *string {
	return onlyGet(a, func() *string { return z.related(node, k, a) })
}

func (z *nodes) claimStatus(node string, a authorizer.Attributes) *string {
	if v := a.GetVerb(); v != "update" && v != "patch" {
		return denied("can only update or patch status of this type")
	}
	return z.related(node, claim, a)
}

func (z *nodes) account(node string, a authorizer.Attributes) *string {
	if a.GetVerb() == "get" && a.GetSubresource() == "" {
		return z.related(node, serviceAccount, a)
	}
	if a.GetVerb() != "create" || a.GetName() == "" {
		return denied("can only create tokens for individual service accounts")
	}
	if a.GetSubresource() != "token" {
		return denied("can only create token subresource of serviceaccount")
	}
	return z.related(node, serviceAccount, a)
}

func lease(node string, a authorizer.Attributes) *string {
	switch a.GetVerb() {
	case "get", "create", "update", "patch", "delete":
	default:
		return denied("can only get, create, update, patch, or delete a node lease")
	}
	if a.GetNamespace() != corev1.NamespaceNodeLease {
		return denied("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	// The name is unknown at a create; NodeRestriction checks it.
	if a.GetVerb() != "create" && a.GetName() != node {
		return denied("can only access node lease with the same name as the requesting node")
	}
	return nil
}

func csiNode(node string, a authorizer.Attributes) *string {
	switch a.GetVerb() {
	case "get", "create", "update", "patch", "delete":
	default:
		return denied("can only get, create, update, patch, or delete a CSINode")
	}
	if a.GetSubresource() != "" {
		return denied("cannot authorize CSINode subresources")
	}
	if a.GetVerb() != "create" && a.GetName() != node {
		return denied("can only access CSINode with the same name as the requesting node")
	}
	return nil
}

func (z *nodes) slice(node string, a authorizer.Attributes) *string {
	if a.GetSubresource() != "" {
		return denied("cannot authorize ResourceSlice subresources")
	}
	switch a.GetVerb() {
	case "create":
		return nil
	case "get", "update", "patch", "delete":
		return unrelated(node, z.relations.resourceSlice(node, a.GetName()))
	case "watch", "list", "deletecollection":
		if selects(a, "spec.nodeName", node) {
			return nil
		}
		return denied("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return denied("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
}

func (z *nodes) podCertificate(node string, a authorizer.Attributes) *string {
	if a.GetSubresource() != "" {
		return denied("nodes may not access the status subresource of PodCertificateRequests")
	}
	switch a.GetVerb() {
	case "create": // NodeRestriction checks the object
		return nil
	case "get":
		return unrelated(node, z.relations.podCertificate(node, a.GetNamespace(), a.GetName()))
	case "list", "watch":
		if selects(a, "spec.nodeName", node) {
			return nil
		}
		return denied("nodes may only list/watch PodCertificateRequests with field selector 'spec.nodeName=%s'", node)
	}
	return denied("nodes may not %s PodCertificateRequests", a.GetVerb())
}

// trustBundle allows reading trust bundles, which are public. Pods select them
// by their signers.
func trustBundle(a authorizer.Attributes) *string {
	switch a.GetVerb() {
	case "get", "list", "watch":
		return nil
	}
	return denied("nodes may only get, list, or watch ClusterTrustBundles")
}

func ownNode(node string, a authorizer.Attributes, rules []rbacv1.PolicyRule) *string {
	switch a.GetVerb() {
	case "get", "list", "watch":
		if a.GetName() != node && !selects(a, "metadata.name", node) {
			if a.GetName() == "" {
				return denied("node '%s' cannot read all nodes, only its own Node object", node)
			}
			return denied("node '%s' cannot read '%s', only its own Node object", node, a.GetName())
		}
	}
	if rbac.Allows(rules, a) {
		return nil
	}
	return denied("")
}

func (z *nodes) pod(node string, a authorizer.Attributes) *string {
	switch a.GetSubresource() {
	case "":
		switch a.GetVerb() {
		case "get":
			return unrelated(node, z.relations.hasPod(node, a.GetNamespace(), a.GetName()))
		case "list", "watch":
			if selects(a, objects.PodNodeNameField, node) {
				return nil
			}
			if a.GetName() != "" {
				return unrelated(node, z.relations.hasPod(node, a.GetNamespace(), a.GetName()))
			}
			return denied("can only list/watch pods with spec.nodeName field selector")
		case "create", "delete":
			return nil
		}
	case "status":
		if v := a.GetVerb(); v == "update" || v == "patch" {
			return nil
		}
	case "eviction":
		if a.GetVerb() == "create" {
			return nil
		}
	}
	if rbac.Allows(z.rules, a) {
		return nil
	}
	return denied("")
}

func (r *relations) hasPod(node, namespace, name string) bool {
	p, ok := r.pods.Get(namespace, name)
	return ok && p.Spec.NodeName == node
}

// selects reports whether the field selector of a request is field=value.
func selects(a authorizer.Attributes, field, value string) bool {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return false
	}
	for _, r := range requirements {
		if r.Field == field && r.Value == value && (r.Operator == "=" || r.Operator == "==") {
			return true
		}
	}
	return false
}
