package admission

import (
	"context"
	"maps"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/authz/node"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
)

const nodeRestrictionDomain = "node-restriction.kubernetes.io"

// nodeRestriction limits the writes of a kubelet to its own node, its own pods
// and their objects.
type nodeRestriction struct {
	always
	pods     objects.Reader[*corev1.Pod]
	nodes    objects.Reader[*corev1.Node]
	accounts objects.Reader[*corev1.ServiceAccount]
	claims   objects.Reader[*corev1.PersistentVolumeClaim]
	volumes  objects.Reader[*corev1.PersistentVolume]
	drivers  objects.Reader[*storagev1.CSIDriver]

	authorizer authorizer.UnconditionalAuthorizer
	// audiences restricts tokens to the audiences in the specs of pods.
	audiences bool
	// insecureRequests leaves requests for kubelet certificates alone.
	insecureRequests bool
}

func newNodeRestriction(c *Config) admission.Interface {
	return nodeRestriction{
		pods:       objects.Of[*corev1.Pod](c.Objects, objects.Pods),
		nodes:      objects.Of[*corev1.Node](c.Objects, objects.Nodes),
		accounts:   objects.Of[*corev1.ServiceAccount](c.Objects, objects.ServiceAccounts),
		claims:     objects.Of[*corev1.PersistentVolumeClaim](c.Objects, objects.Claims),
		volumes:    objects.Of[*corev1.PersistentVolume](c.Objects, objects.PersistentVolumes),
		drivers:    objects.Of[*storagev1.CSIDriver](c.Objects, objects.CSIDrivers),
		authorizer: c.Authorizer,
		audiences:  c.Features.Enabled(feature.ServiceAccountNodeAudienceRestriction),

		insecureRequests: c.Features.Enabled(feature.AllowInsecureKubeletCertificateSigningRequests),
	}
}

func (p nodeRestriction) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	self, isNode := node.Identify(a.GetUserInfo())
	if !isNode {
		return nil
	}
	if self == "" {
		return refused(a, "could not determine node from user %q", a.GetUserInfo().GetName())
	}
	switch a.GetResource().GroupResource() {
	case schema.GroupResource{Resource: "pods"}:
		switch a.GetSubresource() {
		case "":
			return p.pod(self, a)
		case "status":
			return p.podStatus(self, a)
		case "eviction":
			return p.eviction(self, a)
		}
		return refused(a, "unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.GetSubresource())
	case schema.GroupResource{Resource: "nodes"}:
		return p.node(self, a)
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		return claimStatus(self, a)
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return p.token(ctx, self, a)
	case schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}:
		if a.GetNamespace() != corev1.NamespaceNodeLease {
			return refused(a, "can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
		}
		if nameOf(a) != self {
			return refused(a, "can only access node lease with the same name as the requesting node")
		}
	case schema.GroupResource{Group: storagev1.GroupName, Resource: "csinodes"}:
		if nameOf(a) != self {
			return refused(a, "can only access CSINode with the same name as the requesting node")
		}
	case schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}:
		return resourceSlice(self, a)
	case schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}:
		if p.insecureRequests {
			return nil
		}
		return nodeSigningRequest(self, a)
	case schema.GroupResource{Group: certificatesv1.GroupName, Resource: "podcertificaterequests"}:
		return p.podCertificate(ctx, self, a)
	}
	return nil
}

// nameOf returns the name of the object, which the request of a create does not
// have.
func nameOf(a admission.Attributes) string {
	if a.GetName() == "" {
		if o, ok := a.GetObject().(metav1.Object); ok {
			return o.GetName()
		}
	}
	return a.GetName()
}

func (p nodeRestriction) pod(self string, a admission.Attributes) error {
	switch a.GetOperation() {
	case admission.Create:
		return p.mirrorPod(self, a)
	case admission.Delete:
		pod, ok := p.pods.Get(a.GetNamespace(), a.GetName())
		if !ok {
			return apierrors.NewNotFound(corev1.Resource("pods"), a.GetName())
		}
		if pod.Spec.NodeName != self {
			return refused(a, "node %q can only delete pods with spec.nodeName set to itself", self)
		}
		return nil
	}
	return refused(a, "unexpected operation %q, node %q can only create and delete mirror pods", a.GetOperation(), self)
}

func (p nodeRestriction) mirrorPod(self string, a admission.Attributes) error {
	pod, err := typed[*corev1.Pod](a, a.GetObject())
	if err != nil {
		return err
	}
	if !podquery.IsMirror(pod) {
		return refused(a, "pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, self)
	}
	if pod.Spec.NodeName != self {
		return refused(a, "node %q can only create pods with spec.nodeName set to itself", self)
	}
	if err := p.mirrorOwner(self, pod, a); err != nil {
		return err
	}
	// A mirror pod must not give its node access to objects.
	if kind := podquery.APIReference(&pod.Spec); kind != "" {
		return refused(a, "node %q can not create pods that reference %s", self, kind)
	}
	return nil
}

// mirrorOwner requires the current Node as the owner of a mirror pod, so that
// the pod is deleted with the node.
func (p nodeRestriction) mirrorOwner(self string, pod *corev1.Pod, a admission.Attributes) error {
	if len(pod.OwnerReferences) > 1 {
		return refused(a, "node %q can only create pods with a single owner reference set to itself", self)
	}
	if len(pod.OwnerReferences) == 0 {
		return refused(a, "node %q can only create pods with an owner reference set to itself", self)
	}
	owner := pod.OwnerReferences[0]
	if owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != self {
		return refused(a, "node %q can only create pods with an owner reference set to itself", self)
	}
	if owner.Controller == nil || !*owner.Controller {
		return refused(a, "node %q can only create pods with a controller owner reference set to itself", self)
	}
	if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return refused(a, "node %q must not set blockOwnerDeletion on an owner reference", self)
	}
	n, ok := p.nodes.Get("", self)
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("nodes"), self)
	}
	if n.UID != owner.UID {
		return refused(a, "node %s UID mismatch: expected %s got %s", self, owner.UID, n.UID)
	}
	return nil
}

func (p nodeRestriction) podStatus(self string, a admission.Attributes) error {
	if a.GetOperation() != admission.Update {
		return refused(a, "unexpected operation %q", a.GetOperation())
	}
	old, err := typed[*corev1.Pod](a, a.GetOldObject())
	if err != nil {
		return err
	}
	pod, err := typed[*corev1.Pod](a, a.GetObject())
	if err != nil {
		return err
	}
	if old.Spec.NodeName != self {
		return refused(a, "node %q can only update pod status for pods with spec.nodeName set to itself", self)
	}
	if !maps.Equal(old.Labels, pod.Labels) {
		return refused(a, "node %q cannot update labels through pod status", self)
	}
	// The claims in these fields decide what the node may read.
	if !equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) ||
		!equality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus) {
		return refused(a, "node %q cannot update resource claim statues", self)
	}
	return nil
}

func (p nodeRestriction) eviction(self string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return refused(a, "unexpected operation %s", a.GetOperation())
	}
	name := nameOf(a)
	if name == "" {
		return refused(a, "could not determine pod from request data")
	}
	pod, ok := p.pods.Get(a.GetNamespace(), name)
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	if pod.Spec.NodeName != self {
		return refused(a, "node %s can only evict pods with spec.nodeName set to itself", self)
	}
	return nil
}

func (p nodeRestriction) node(self string, a admission.Attributes) error {
	requested := nameOf(a)
	if requested != self {
		return refused(a, "node %q is not allowed to modify node %q", self, requested)
	}
	if op := a.GetOperation(); op != admission.Create && op != admission.Update {
		return nil
	}
	n, err := typed[*corev1.Node](a, a.GetObject())
	if err != nil {
		return err
	}
	switch a.GetOperation() {
	case admission.Create:
		if n.Spec.ConfigSource != nil { //nolint:staticcheck // deprecated, but must still be refused
			return refused(a, "node %q is not allowed to create pods with a non-nil configSource", self)
		}
		if bad := forbiddenLabels(nil, n.Labels); len(bad) > 0 {
			return refused(a, "node %q is not allowed to set the following labels: %s", self, strings.Join(bad, ", "))
		}
		if len(n.OwnerReferences) > 0 {
			return refused(a, "node %q is not allowed to set owner references", self)
		}
	case admission.Update:
		old, err := typed[*corev1.Node](a, a.GetOldObject())
		if err != nil {
			return err
		}
		if n.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(old.Spec.ConfigSource, n.Spec.ConfigSource) { //nolint:staticcheck // deprecated, but must still be refused
			return refused(a, "node %q is not allowed to update configSource to a new non-nil configSource", self)
		}
		if !equality.Semantic.DeepEqual(old.Spec.Taints, n.Spec.Taints) {
			return refused(a, "node %q is not allowed to modify taints", self)
		}
		if !equality.Semantic.DeepEqual(old.OwnerReferences, n.OwnerReferences) {
			return refused(a, "node %q is not allowed to modify ownerReferences", self)
		}
		if bad := forbiddenLabels(old.Labels, n.Labels); len(bad) > 0 {
			return refused(a, "is not allowed to modify labels: %s", strings.Join(bad, ", "))
		}
	}
	return nil
}

// kubeletLabel reports whether a kubelet may set a label in Kubernetes' own
// domains on its node, besides all labels in kubelet.kubernetes.io and
// node.kubernetes.io.
func kubeletLabel(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
		corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		corev1.LabelWindowsBuild:
		return true
	}
	return false
}

// forbiddenLabels returns the changed labels that a node may not change itself.
func forbiddenLabels(before, after map[string]string) []string {
	bad := sets.New[string]()
	check := func(key string) {
		domain, _, found := strings.Cut(key, "/")
		if !found || kubeletLabel(key) {
			return
		}
		within := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
		switch {
		case within(nodeRestrictionDomain):
			bad.Insert(key)
		case within(corev1.LabelNamespaceSuffixKubelet), within(corev1.LabelNamespaceSuffixNode):
		case within("kubernetes.io"), within("k8s.io"):
			bad.Insert(key)
		}
	}
	for key, value := range after {
		if old, ok := before[key]; !ok || old != value {
			check(key)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			check(key)
		}
	}
	return sets.List(bad)
}

// claimStatus restricts a node's update of a claim to the fields of the
// volume's size.
func claimStatus(self string, a admission.Attributes) error {
	if a.GetSubresource() != "status" || a.GetOperation() != admission.Update {
		return refused(a, "unexpected operation %q on subresource %q, node %q can only update the status", a.GetOperation(), a.GetSubresource(), self)
	}
	old, err := typed[*corev1.PersistentVolumeClaim](a, a.GetOldObject())
	if err != nil {
		return err
	}
	claim, err := typed[*corev1.PersistentVolumeClaim](a, a.GetObject())
	if err != nil {
		return err
	}
	old, claim = old.DeepCopy(), claim.DeepCopy()
	for _, c := range []*corev1.PersistentVolumeClaim{old, claim} {
		c.ManagedFields, c.ResourceVersion = nil, ""
		c.Status.Capacity, c.Status.Conditions, c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil, nil, nil
	}
	if !equality.Semantic.DeepEqual(old, claim) {
		return refused(a, "node %q is not allowed to update fields other than status.quantity and status.conditions", self)
	}
	return nil
}

func resourceSlice(self string, a admission.Attributes) error {
	obj := a.GetObject()
	if a.GetOperation() == admission.Delete {
		obj = a.GetOldObject()
	}
	slice, err := typed[*resourcev1.ResourceSlice](a, obj)
	if err != nil {
		return err
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != self {
		if a.GetOperation() == admission.Create {
			return refused(a, "can only create ResourceSlice with the same NodeName as the requesting node")
		}
		return refused(a, "can only delete ResourceSlice with the same NodeName as the requesting node")
	}
	return nil
}
