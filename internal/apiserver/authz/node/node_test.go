package node

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

func fixture() *objectstest.Memory {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "default",
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
			Containers: []corev1.Container{{
				EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}},
				Env:     []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}}}},
			}},
			Volumes: []corev1.Volume{
				{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "b", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
				{Name: "c", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "greedy"}}},
				{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pending"}}},
				{Name: "e", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "again"}}},
			},
		},
	}
	mirror := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "mirror", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
		Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "admin", Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "wanted"}}}}},
	}
	claim := func(name string, uid types.UID, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: uid}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	volume := func(name, secret string, of *corev1.ObjectReference) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: of, PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{NodeStageSecretRef: &corev1.SecretReference{Namespace: "storage", Name: secret},
				ControllerPublishSecretRef: &corev1.SecretReference{Namespace: "storage", Name: "controller"}}}}}
	}
	return objectstest.NewMemory().Put(objects.Pods, pod, mirror).
		Put(objects.Claims, claim("data", "u1", "pv1"), claim("greedy", "u2", "pv2"), claim("pending", "u3", ""), claim("again", "u4", "pv4")).
		Put(objects.PersistentVolumes,
			volume("pv1", "stage", &corev1.ObjectReference{Namespace: "web", Name: "data", UID: "u1"}),
			volume("pv2", "other-tenant", &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "u9"}),
			volume("pv3", "reserved", &corev1.ObjectReference{Namespace: "web", Name: "pending"}),
			volume("pv4", "former", &corev1.ObjectReference{Namespace: "web", Name: "again", UID: "u0"}),
			volume("pv5", "free", nil)).
		Put(objects.VolumeAttachments, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}}).
		Put(objects.PodCertificates, &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pcr"}, Spec: certificatesv1.PodCertificateRequestSpec{NodeName: "n1"}})
}

type nodeCase struct {
	what   string
	a      authorizer.AttributesRecord
	n1, n2 string // the reasons for nodes n1 and n2; "ok" is allowed
}

const (
	unrelatedToN1 = "no relationship found between node 'n1' and this object"
	unrelatedToN2 = "no relationship found between node 'n2' and this object"
)

func on(verb, resource, namespace, name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, Resource: resource, Namespace: namespace, Name: name, ResourceRequest: true}
}

func inGroup(g string, a authorizer.AttributesRecord) authorizer.AttributesRecord {
	a.APIGroup = g
	return a
}

func subresource(s string, a authorizer.AttributesRecord) authorizer.AttributesRecord {
	a.Subresource = s
	return a
}

func coreCases() []nodeCase {
	ownPods := fields.Requirements{{Field: "spec.nodeName", Operator: "=", Value: "n1"}}
	return []nodeCase{
		{"image pull secret", on("get", "secrets", "web", "pull"), "ok", unrelatedToN2},
		{"secret in env", on("get", "secrets", "web", "key"), "ok", unrelatedToN2},
		{"secret of a volume", on("get", "secrets", "storage", "stage"), "ok", unrelatedToN2},
		{"other secret", on("get", "secrets", "web", "x"), unrelatedToN1, unrelatedToN2},
		{"all secrets", on("list", "secrets", "web", ""), "No Object name found", "No Object name found"},
		{"secret update", on("update", "secrets", "web", "pull"), "can only read resources of this type", "can only read resources of this type"},
		{"projected config map", on("watch", "configmaps", "web", "kube-root-ca.crt"), "ok", unrelatedToN2},
		{"config map in env", on("get", "configmaps", "web", "env"), "ok", unrelatedToN2},
		{"claim", on("get", "persistentvolumeclaims", "web", "data"), "ok", unrelatedToN2},
		{"ephemeral claim", on("get", "persistentvolumeclaims", "web", "p-scratch"), "ok", unrelatedToN2},
		{"claim list", on("list", "persistentvolumeclaims", "web", "data"), "can only get individual resources of this type", "can only get individual resources of this type"},
		{"volume", on("get", "persistentvolumes", "", "pv1"), "ok", unrelatedToN2},
		{"another tenant's volume", on("get", "persistentvolumes", "", "pv2"), unrelatedToN1, unrelatedToN2},
		{"secret of another tenant's volume", on("get", "secrets", "storage", "other-tenant"), unrelatedToN1, unrelatedToN2},
		{"volume kept for a pending claim", on("get", "persistentvolumes", "", "pv3"), "ok", unrelatedToN2},
		{"secret of a volume kept for a pending claim", on("get", "secrets", "storage", "reserved"), unrelatedToN1, unrelatedToN2},
		{"volume of a former claim", on("get", "persistentvolumes", "", "pv4"), unrelatedToN1, unrelatedToN2},
		{"secret of a former claim's volume", on("get", "secrets", "storage", "former"), unrelatedToN1, unrelatedToN2},
		{"free volume", on("get", "persistentvolumes", "", "pv5"), unrelatedToN1, unrelatedToN2},
		{"secret of a controller", on("get", "secrets", "storage", "controller"), unrelatedToN1, unrelatedToN2},
		{"secret of a mirror pod", on("get", "secrets", "web", "wanted"), unrelatedToN1, unrelatedToN2},
		{"token of a mirror pod's account", subresource("token", on("create", "serviceaccounts", "web", "admin")), unrelatedToN1, unrelatedToN2},
		{"mirror pod", on("get", "pods", "web", "mirror"), "ok", unrelatedToN2},
		{"token", subresource("token", on("create", "serviceaccounts", "web", "default")), "ok", unrelatedToN2},
		{"token of another account", subresource("token", on("create", "serviceaccounts", "web", "builder")), unrelatedToN1, unrelatedToN2},
		{"node", on("get", "nodes", "", "n1"), "ok", "node 'n2' cannot read 'n1', only its own Node object"},
		{"nodes", on("list", "nodes", "", ""), "node 'n1' cannot read all nodes, only its own Node object", "node 'n2' cannot read all nodes, only its own Node object"},
		{"pod", on("get", "pods", "web", "p"), "ok", unrelatedToN2},
		{"pods", on("list", "pods", "", ""), "can only list/watch pods with spec.nodeName field selector", "can only list/watch pods with spec.nodeName field selector"},
		{"own pods", authorizer.AttributesRecord{Verb: "watch", Resource: "pods", ResourceRequest: true, FieldSelectorRequirements: ownPods},
			"ok", "can only list/watch pods with spec.nodeName field selector"},
		{"general rule", on("get", "services", "web", "s"), "ok", "ok"},
		{"nothing", on("get", "deployments", "web", "s"), "", ""},
	}
}

func otherCases() []nodeCase {
	return []nodeCase{
		{"certificate request", inGroup("certificates.k8s.io", on("get", "podcertificaterequests", "web", "pcr")), "ok", unrelatedToN2},
		{"status of a certificate request", inGroup("certificates.k8s.io", subresource("status", on("update", "podcertificaterequests", "web", "pcr"))),
			"nodes may not access the status subresource of PodCertificateRequests", "nodes may not access the status subresource of PodCertificateRequests"},
		{"all certificate requests", inGroup("certificates.k8s.io", on("list", "podcertificaterequests", "", "")),
			"nodes may only list/watch PodCertificateRequests with field selector 'spec.nodeName=n1'", "nodes may only list/watch PodCertificateRequests with field selector 'spec.nodeName=n2'"},
		{"deletion of a certificate request", inGroup("certificates.k8s.io", on("delete", "podcertificaterequests", "web", "pcr")),
			"nodes may not delete PodCertificateRequests", "nodes may not delete PodCertificateRequests"},
		{"trust bundles", inGroup("certificates.k8s.io", on("list", "clustertrustbundles", "", "")), "ok", "ok"},
		{"change of a trust bundle", inGroup("certificates.k8s.io", on("update", "clustertrustbundles", "", "ca")),
			"nodes may only get, list, or watch ClusterTrustBundles", "nodes may only get, list, or watch ClusterTrustBundles"},
		{"attachment", inGroup("storage.k8s.io", on("get", "volumeattachments", "", "va")), "ok", unrelatedToN2},
		{"lease", inGroup("coordination.k8s.io", on("update", "leases", "kube-node-lease", "n1")), "ok", "can only access node lease with the same name as the requesting node"},
		{"other lease", inGroup("coordination.k8s.io", on("update", "leases", "kube-system", "n1")),
			`can only access leases in the "kube-node-lease" system namespace`, `can only access leases in the "kube-node-lease" system namespace`},
		{"csi node", inGroup("storage.k8s.io", on("patch", "csinodes", "", "n1")), "ok", "can only access CSINode with the same name as the requesting node"},
	}
}

func TestNodes(t *testing.T) {
	z := New(fixture(), []rbacv1.PolicyRule{
		{Verbs: []string{"create", "get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"services"}},
	})
	for _, test := range append(coreCases(), otherCases()...) {
		t.Run(test.what, func(t *testing.T) {
			for node, want := range map[string]string{"n1": test.n1, "n2": test.n2} {
				a := test.a
				a.User = &user.DefaultInfo{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
				d, got, err := z.Authorize(t.Context(), a)
				if d == authorizer.DecisionAllow {
					got = "ok"
				}
				if got != want || err != nil {
					t.Errorf("%s: %q %v, want %q", node, got, err, want)
				}
			}
		})
	}
	a := on("get", "secrets", "web", "pull")
	a.User = &user.DefaultInfo{Name: "system:node:n1"}
	if d, _, _ := z.Authorize(t.Context(), a); d != authorizer.DecisionNoOpinion {
		t.Error("a user with a node's name but not in system:nodes was taken for a node")
	}
}
