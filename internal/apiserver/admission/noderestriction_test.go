package admission

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/feature"
)

// nodeRestrictionCase is a write of node n1 and the error that it gets; "" for none.
type nodeRestrictionCase struct {
	w    write
	want string
}

func checkNodeRestriction(t *testing.T, cases map[string]nodeRestrictionCase) {
	t.Helper()
	p := newNodeRestriction(config(objectstest.NewMemory().Put(objects.Pods, boundPod("n2")).Put(objects.Nodes, registeredNode())))
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			test.w.user = &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}
			if got := run(t, p, test.w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func boundPod(node string) *corev1.Pod { return pod(func(p *corev1.Pod) { p.Spec.NodeName = node }) }

func mirrorPod(change func(*corev1.Pod)) *corev1.Pod {
	p := boundPod("n1")
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1", Controller: ptr.To(true)}}
	if change != nil {
		change(p)
	}
	return p
}

func ownedMirrorPod(change func(*metav1.OwnerReference)) *corev1.Pod {
	return mirrorPod(func(p *corev1.Pod) { change(&p.OwnerReferences[0]) })
}

func mirrorPodWithVolume(s corev1.VolumeSource) *corev1.Pod {
	return mirrorPod(func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} })
}

func mirrorPodWithProjection(s corev1.VolumeProjection) *corev1.Pod {
	return mirrorPodWithVolume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{s}}})
}

func refusedReference(kind string) string {
	return `pods "p" is forbidden: node "n1" can not create pods that reference ` + kind
}

func podWithStatus(change func(*corev1.PodStatus)) *corev1.Pod {
	p := boundPod("n1")
	change(&p.Status)
	return p
}

func newNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func taintedNode() *corev1.Node {
	n := newNode("n1", nil)
	n.Spec.Taints = []corev1.Taint{{Key: "x"}}
	return n
}

func registeredNode() *corev1.Node {
	n := newNode("n1", nil)
	n.UID = "u1"
	return n
}

func ownedNode() *corev1.Node {
	n := newNode("n1", nil)
	n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p1"}}
	return n
}

func nodeWithConfigSource() *corev1.Node {
	n := newNode("n1", nil)
	n.Spec.ConfigSource = &corev1.NodeConfigSource{} //nolint:staticcheck // deprecated, but must still be refused
	return n
}

func newLease(namespace, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func newSlice(node string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}
}

func newClaim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "data"}}
	if change != nil {
		change(c)
	}
	return c
}

func TestNodeRestrictionOfMirrorPods(t *testing.T) {
	checkNodeRestriction(t, map[string]nodeRestrictionCase{
		"mirror pod": {write{kind: "Pod", resource: "pods", obj: mirrorPod(nil)}, ""},
		"mirror pod elsewhere": {write{kind: "Pod", resource: "pods", obj: mirrorPod(func(p *corev1.Pod) { p.Spec.NodeName = "n2" })},
			`pods "p" is forbidden: node "n1" can only create pods with spec.nodeName set to itself`},
		"mirror pod with account": {write{kind: "Pod", resource: "pods", obj: mirrorPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" })},
			`pods "p" is forbidden: node "n1" can not create pods that reference a service account`},
		"mirror pod without owner": {write{kind: "Pod", resource: "pods", obj: mirrorPod(func(p *corev1.Pod) { p.OwnerReferences = nil })},
			`pods "p" is forbidden: node "n1" can only create pods with an owner reference set to itself`},
		"mirror pod of two owners": {write{kind: "Pod", resource: "pods", obj: mirrorPod(func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) })},
			`pods "p" is forbidden: node "n1" can only create pods with a single owner reference set to itself`},
		"mirror pod of another node": {write{kind: "Pod", resource: "pods", obj: ownedMirrorPod(func(o *metav1.OwnerReference) { o.Name = "n2" })},
			`pods "p" is forbidden: node "n1" can only create pods with an owner reference set to itself`},
		"mirror pod of a former node": {write{kind: "Pod", resource: "pods", obj: ownedMirrorPod(func(o *metav1.OwnerReference) { o.UID = "u0" })},
			`pods "p" is forbidden: node n1 UID mismatch: expected u0 got u1`},
		"mirror pod not controlled": {write{kind: "Pod", resource: "pods", obj: ownedMirrorPod(func(o *metav1.OwnerReference) { o.Controller = nil })},
			`pods "p" is forbidden: node "n1" can only create pods with a controller owner reference set to itself`},
		"mirror pod that keeps the node": {write{kind: "Pod", resource: "pods", obj: ownedMirrorPod(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(true) })},
			`pods "p" is forbidden: node "n1" must not set blockOwnerDeletion on an owner reference`},
		"mirror pod with a secret":      {write{kind: "Pod", resource: "pods", obj: mirrorPodWithVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})}, refusedReference("secrets")},
		"mirror pod with a pull secret": {write{kind: "Pod", resource: "pods", obj: mirrorPod(func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}} })}, refusedReference("secrets")},
		"mirror pod with a config map":  {write{kind: "Pod", resource: "pods", obj: mirrorPodWithProjection(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}})}, refusedReference("configmaps")},
		"mirror pod with a token": {write{kind: "Pod", resource: "pods", obj: mirrorPodWithProjection(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}})},
			refusedReference("serviceaccounts (via projected volumes)")},
		"mirror pod with a trust bundle": {write{kind: "Pod", resource: "pods", obj: mirrorPodWithProjection(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}})}, refusedReference("clustertrustbundles")},
		"mirror pod with a certificate":  {write{kind: "Pod", resource: "pods", obj: mirrorPodWithProjection(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}})}, refusedReference("podcertificates")},
		"mirror pod with a claim": {write{kind: "Pod", resource: "pods", obj: mirrorPodWithVolume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}})},
			refusedReference("persistentvolumeclaims")},
		"mirror pod with an ephemeral claim": {write{kind: "Pod", resource: "pods", obj: mirrorPodWithVolume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})}, refusedReference("persistentvolumeclaims")},
		"mirror pod with a CSI volume":       {write{kind: "Pod", resource: "pods", obj: mirrorPodWithVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}})}, refusedReference("csidrivers (via CSI volumes)")},
		"mirror pod with devices": {write{kind: "Pod", resource: "pods", obj: mirrorPod(func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}} })},
			refusedReference("resourceclaims")},
	})
}

func TestNodeRestrictionOfPods(t *testing.T) {
	checkNodeRestriction(t, map[string]nodeRestrictionCase{
		"other pod": {write{kind: "Pod", resource: "pods", obj: boundPod("n1")}, `pods "p" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		"resource claims in status": {write{op: admission.Update, kind: "Pod", resource: "pods/status", old: boundPod("n1"), obj: podWithStatus(func(s *corev1.PodStatus) {
			s.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: ptr.To("other")}}
		})}, `pods "p" is forbidden: node "n1" cannot update resource claim statues`},
		"extended resource claim in status": {write{op: admission.Update, kind: "Pod", resource: "pods/status", old: boundPod("n1"), obj: podWithStatus(func(s *corev1.PodStatus) {
			s.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "other"}
		})}, `pods "p" is forbidden: node "n1" cannot update resource claim statues`},
		"labels by status": {write{op: admission.Update, kind: "Pod", resource: "pods/status", old: boundPod("n1"), obj: pod(func(p *corev1.Pod) { p.Spec.NodeName, p.Labels = "n1", map[string]string{"app": "db"} })},
			`pods "p" is forbidden: node "n1" cannot update labels through pod status`},
		"ephemeral containers": {write{op: admission.Update, kind: "Pod", resource: "pods/ephemeralcontainers", old: boundPod("n1"), obj: boundPod("n1")},
			`pods "p" is forbidden: unexpected pod subresource "ephemeralcontainers", only 'status' and 'eviction' are allowed`},
		"eviction of another's pod": {write{kind: "Eviction", resource: "pods/eviction", name: "p", obj: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"}}},
			`pods "p" is forbidden: node n1 can only evict pods with spec.nodeName set to itself`},
		"update of a pod": {write{op: admission.Update, kind: "Pod", resource: "pods", old: boundPod("n1"), obj: boundPod("n1")},
			`pods "p" is forbidden: unexpected operation "UPDATE", node "n1" can only create and delete mirror pods`},
		"pod of an unknown type": {write{kind: "Pod", resource: "pods", obj: newNode("p", nil)}, `pods "p" is forbidden: unexpected type *v1.Node`},
		"delete of another's pod": {write{op: admission.Delete, kind: "Pod", resource: "pods", old: boundPod("n2")},
			`pods "p" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself`},
		"status of another's pod": {write{op: admission.Update, kind: "Pod", resource: "pods/status", obj: boundPod("n2"), old: boundPod("n2")},
			`pods "p" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself`},
		"status": {write{op: admission.Update, kind: "Pod", resource: "pods/status", obj: boundPod("n1"), old: boundPod("n1")}, ""},
	})
}

func TestNodeRestrictionOfNodes(t *testing.T) {
	checkNodeRestriction(t, map[string]nodeRestrictionCase{
		"owner of the node":     {write{op: admission.Update, kind: "Node", resource: "nodes/status", obj: ownedNode(), old: newNode("n1", nil)}, `nodes "n1" is forbidden: node "n1" is not allowed to modify ownerReferences`},
		"owner at registration": {write{kind: "Node", resource: "nodes", obj: ownedNode()}, `nodes "n1" is forbidden: node "n1" is not allowed to set owner references`},
		"config source":         {write{op: admission.Update, kind: "Node", resource: "nodes", obj: nodeWithConfigSource(), old: newNode("n1", nil)}, `nodes "n1" is forbidden: node "n1" is not allowed to update configSource to a new non-nil configSource`},
		"deletion of another":   {write{op: admission.Delete, kind: "Node", resource: "nodes", old: newNode("n2", nil)}, `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`},
		"own node":              {write{kind: "Node", resource: "nodes", obj: newNode("n1", map[string]string{"kubernetes.io/hostname": "n1", "mine": "x", "node.kubernetes.io/x": "y"})}, ""},
		"another node":          {write{kind: "Node", resource: "nodes", obj: newNode("n2", nil)}, `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`},
		"restricted labels": {write{kind: "Node", resource: "nodes", obj: newNode("n1", map[string]string{"node-restriction.kubernetes.io/a": "", "x.k8s.io/b": ""})},
			`nodes "n1" is forbidden: node "n1" is not allowed to set the following labels: node-restriction.kubernetes.io/a, x.k8s.io/b`},
		"taints":  {write{op: admission.Update, kind: "Node", resource: "nodes", obj: taintedNode(), old: newNode("n1", nil)}, `nodes "n1" is forbidden: node "n1" is not allowed to modify taints`},
		"removal": {write{op: admission.Update, kind: "Node", resource: "nodes", obj: newNode("n1", nil), old: newNode("n1", map[string]string{"kubernetes.io/role": "x"})}, `nodes "n1" is forbidden: is not allowed to modify labels: kubernetes.io/role`},
	})
}

func TestNodeRestrictionOfOtherObjects(t *testing.T) {
	checkNodeRestriction(t, map[string]nodeRestrictionCase{
		"own lease": {write{resource: "coordination.k8s.io/leases", obj: newLease("kube-node-lease", "n1")}, ""},
		"lease of another": {write{resource: "coordination.k8s.io/leases", obj: newLease("kube-node-lease", "n2")},
			`leases.coordination.k8s.io "n2" is forbidden: can only access node lease with the same name as the requesting node`},
		"lease of a component": {write{op: admission.Update, resource: "coordination.k8s.io/leases", obj: newLease("kube-system", "n1"), old: newLease("kube-system", "n1")},
			`leases.coordination.k8s.io "n1" is forbidden: can only access leases in the "kube-node-lease" system namespace`},
		"CSINode of another": {write{resource: "storage.k8s.io/csinodes", obj: &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}},
			`csinodes.storage.k8s.io "n2" is forbidden: can only access CSINode with the same name as the requesting node`},
		"own devices": {write{resource: "resource.k8s.io/resourceslices", obj: newSlice("n1")}, ""},
		"devices of another": {write{resource: "resource.k8s.io/resourceslices", obj: newSlice("n2")},
			`resourceslices.resource.k8s.io "s" is forbidden: can only create ResourceSlice with the same NodeName as the requesting node`},
		"deletion of another's devices": {write{op: admission.Delete, resource: "resource.k8s.io/resourceslices", old: newSlice("n2")},
			`resourceslices.resource.k8s.io "s" is forbidden: can only delete ResourceSlice with the same NodeName as the requesting node`},
		"size of a volume": {write{op: admission.Update, resource: "persistentvolumeclaims/status", old: newClaim(nil), obj: newClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Status.Capacity = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
		})}, ""},
		"phase of a volume": {write{op: admission.Update, resource: "persistentvolumeclaims/status", old: newClaim(nil), obj: newClaim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })},
			`persistentvolumeclaims "data" is forbidden: node "n1" is not allowed to update fields other than status.quantity and status.conditions`},
	})
}

// newTokenConfig has pods p and bare on node n1, and other on n2. The volumes of
// p request tokens for several audiences.
func newTokenConfig() *Config {
	token := func(audience string) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience}}}}}
	}
	mine := pod(func(p *corev1.Pod) {
		p.UID, p.Spec.NodeName = "u", "n1"
		for i, s := range []corev1.VolumeSource{
			token(""), token("vault"), {CSI: &corev1.CSIVolumeSource{Driver: "inline"}},
			{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}, {Ephemeral: &corev1.EphemeralVolumeSource{}},
		} {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: string(rune('a' + i)), VolumeSource: s})
		}
	})
	others := pod(func(p *corev1.Pod) { p.Name, p.UID, p.Spec.NodeName = "other", "u", "n2" })
	bare := pod(func(p *corev1.Pod) { p.Name, p.UID, p.Spec.NodeName = "bare", "u", "n1" })
	claim := func(name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name}}
	}
	volume := func(name string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: name}
		return v
	}
	driver := func(name, audience string) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: audience}}}}
	}
	return config(objectstest.NewMemory().Put(objects.Pods, mine, others, bare).
		Put(objects.Claims, claim("data"), claim("p-e")).Put(objects.PersistentVolumes, volume("data"), volume("p-e")).
		Put(objects.CSIDrivers, driver("inline", "of-inline"), driver("data", "of-claim"), driver("p-e", "of-ephemeral"), driver("unused", "of-unused")))
}

// A node gets tokens bound to its own pods, for their audiences.
func TestNodeTokens(t *testing.T) {
	self := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	c := newTokenConfig()
	c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "request-serviceaccounts-token-audience" && a.GetResource() == "registry" && a.GetNamespace() == "web" && a.GetName() == "robot" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	request := func(pod string, uid string, audiences ...string) *authenticationv1.TokenRequest {
		return &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "web"}, Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: types.UID(uid)}}}
	}
	unbound := request("p", "u")
	unbound.Spec.BoundObjectRef = nil
	refused := func(why string) string { return `serviceaccounts "robot" is forbidden: ` + why }
	noAudience := func(audience string) string {
		return refused(`audience "` + audience + `" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience`)
	}
	off, err := feature.Parse([]string{"ServiceAccountNodeAudienceRestriction=false"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		request  *authenticationv1.TokenRequest
		features *feature.Set
		want     string
	}{
		"the API server":               {request("p", "u"), nil, ""},
		"an audience of a volume":      {request("p", "u", "vault"), nil, ""},
		"of an inline driver":          {request("p", "u", "of-inline"), nil, ""},
		"of a claim's driver":          {request("p", "u", "of-claim"), nil, ""},
		"of an ephemeral driver":       {request("p", "u", "of-ephemeral"), nil, ""},
		"of a driver it does not use":  {request("p", "u", "of-unused"), nil, noAudience("of-unused")},
		"allowed by a role":            {request("p", "u", "registry"), nil, ""},
		"another audience":             {request("p", "u", "cloud"), nil, noAudience("cloud")},
		"a pod without tokens":         {request("bare", "u"), nil, noAudience("")},
		"two audiences":                {request("p", "u", "", "vault"), nil, refused("node may only request 0 or 1 audiences")},
		"another audience, turned off": {request("p", "u", "cloud"), off, ""},
		"another node's pod":           {request("other", "u"), off, refused("node requested token bound to a pod scheduled on a different node")},
		"another pod of that name": {request("p", "u0"), nil,
			`Operation cannot be fulfilled on pods "p": the UID in the bound object reference (u0) does not match the UID in record. The object might have been deleted and then recreated`},
		"no uid":   {request("p", ""), nil, refused("node requested token with a pod binding without a uid")},
		"no pod":   {unbound, nil, refused("node requested token not bound to a pod")},
		"gone pod": {request("gone", "u"), nil, `pods "gone" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			c.Features = test.features
			got := run(t, newNodeRestriction(c), write{resource: "serviceaccounts/token", name: "robot", obj: test.request, user: self})
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// A node may request kubelet certificates in its own name only, in every
// version.
func TestNodeSigningRequests(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(signer, name string) *certificatesv1.CertificateSigningRequest {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
	}
	broken := request(certificatesv1.KubeletServingSignerName, "x")
	broken.Spec.Request = []byte("x")
	const refused = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: `
	for name, test := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want string
	}{
		"client":           {request(certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:n1"), ""},
		"serving":          {request(certificatesv1.KubeletServingSignerName, "system:node:n1"), ""},
		"another's client": {request(certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:n2"), refused + "can only create a node CSR with CN=system:node:n1"},
		"another's server": {request(certificatesv1.KubeletServingSignerName, "system:node:n2"), refused + "can only create a node CSR with CN=system:node:n1"},
		"another signer":   {request("example.com/one", "anything"), ""},
		"nonsense":         {broken, refused + "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"},
	} {
		got := run(t, newNodeRestriction(config(objectstest.NewMemory())), write{resource: "certificates.k8s.io/certificatesigningrequests", obj: test.csr,
			user: &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}})
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	insecure, err := feature.Parse([]string{"AllowInsecureKubeletCertificateSigningRequests=true"})
	if err != nil {
		t.Fatal(err)
	}
	c := config(objectstest.NewMemory())
	c.Features = insecure
	if got := run(t, newNodeRestriction(c), write{resource: "certificates.k8s.io/certificatesigningrequests", obj: request(certificatesv1.KubeletServingSignerName, "system:node:n2"),
		user: &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}}); got != "" {
		t.Errorf("AllowInsecureKubeletCertificateSigningRequests: %q", got)
	}
}

// A node may request certificates for its own current pods only, from their
// signers.
func TestNodePodCertificates(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "nu"}}
	running := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Name, p.UID, p.Spec.NodeName, p.Spec.ServiceAccountName = name, "pu", "n1", "robot"
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/one"}}}}}}}
			change(p)
		})
	}
	m := objectstest.NewMemory().Put(objects.Nodes, node).
		Put(objects.ServiceAccounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "robot", UID: "au"}}).
		Put(objects.Pods, running("p", func(*corev1.Pod) {}), running("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }),
			running("mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }))
	for name, test := range map[string]struct {
		change func(*certificatesv1.PodCertificateRequestSpec)
		want   string
	}{
		"own pod":       {func(*certificatesv1.PodCertificateRequestSpec) {}, ""},
		"another node":  {func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "n2" }, `podcertificaterequests.certificates.k8s.io "r" is forbidden: PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"`},
		"former node":   {func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "x" }, `Internal error occurred: PodCertificateRequest for pod "web/p" names node UID "x", inconsistent with the running node`},
		"former pod":    {func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "x" }, `Internal error occurred: PodCertificateRequest for pod "web/p" contains pod UID ("x") which differs from running pod`},
		"another's pod": {func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "elsewhere" }, `podcertificaterequests.certificates.k8s.io "r" is forbidden: pod "web/elsewhere" is not running on node "n1" named in the PodCertificateRequest`},
		"mirror pod":    {func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "mirror" }, `podcertificaterequests.certificates.k8s.io "r" is forbidden: pod "web/mirror" is a mirror pod`},
		"another account": {func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "admin" },
			`podcertificaterequests.certificates.k8s.io "r" is forbidden: PodCertificateRequest for pod "web/p" contains serviceAccountName ("admin") that differs from running pod ("robot")`},
		"former account": {func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountUID = "x" }, `Internal error occurred: PodCertificateRequest for pod "web/p" names service account UID "x", which differs from the running service account`},
		"another signer": {func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/two" },
			`podcertificaterequests.certificates.k8s.io "r" is forbidden: pod "web/p" has no projected volume with a certificate of signer "example.com/two"`},
	} {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "r"}, Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/one", PodName: "p", PodUID: "pu", ServiceAccountName: "robot", ServiceAccountUID: "au", NodeName: "n1", NodeUID: "nu"}}
		test.change(&r.Spec)
		w := write{resource: "certificates.k8s.io/podcertificaterequests", obj: r, user: &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}}
		if got := run(t, newNodeRestriction(config(m)), w); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		w.op, w.old = admission.Update, r
		if got := run(t, newNodeRestriction(config(m)), w); got != `podcertificaterequests.certificates.k8s.io "r" is forbidden: unexpected operation UPDATE` {
			t.Errorf("%s, update: %q", name, got)
		}
	}
}
